"""Hostile requests to axonn serve and axonn board: they survive, answer others, and give their
memory back."""

import random
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import finish, kill_session, start
from request_grammar import certain_requests, head, hostile_request, post
from strangers import trained

# Statuses that the servers give; 500 would be a fault that nobody foresaw.
STATUSES = {b"200", b"204", b"400", b"401", b"403", b"404", b"408", b"413", b"415", b"431", b"503"}
CLIENTS = 8  # at the same time
SLOW = 150  # connections that stay open and send a byte now and then
PATIENCE = 0.2  # seconds for the answer to a hostile request, which may lack its end
SECONDS = 60  # for the others, on any machine


def hostile_requests(attacked):
    run = trained(attacked)
    model = ["serve", "--model", run.out / "checkpoints", "--queue", "64", "--max-answer", "20000"]
    for name, words, proof in (
        ("serve", model, post("/v1/completions", b'{"prompt":"a","max_tokens":2}')),
        ("board", ["board", run.out], head("GET /api/runs")),
    ):
        server = Server(attacked, name, words)
        try:
            yield from server.attacked_by(attacked.several(200, 10_000), proof)
            if server.process.poll() is None:
                yield server.ends()
        finally:
            if server.process.poll() is None:
                kill_session(server.process)


def read_all(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionError:  # the server refused what was sent
        pass
    return b"".join(parts)


class Server:
    def __init__(self, attacked, name, words):
        self.name = name
        self.folder = attacked.folder / name
        self.folder.mkdir()
        self.rng = random.Random(attacked.rng.random())
        self.process = start([attacked.program, *words, "--port", "0"], self.folder)
        self.port = self.wait_for_port()
        self.slow: list[socket.socket] = []

    def wait_for_port(self) -> int:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            if found := re.search(r"127\.0\.0\.1:(\d+)", (self.folder / "stdout").read_text()):
                return int(found[1])
            time.sleep(0.01)
        result = finish(self.process, self.folder)
        raise RuntimeError(f"{self.name} does not start: {result.text()}")

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), SECONDS)

    def answer(self, data: bytes) -> bytes:
        """The answer to a request, after which this side says that it sends no more."""
        with self.connected() as connection:
            connection.sendall(data.replace(b"Host:", b"Connection: close\r\nHost:", 1))
            return read_all(connection)

    def memory(self) -> int:
        """The process's resident memory in KiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1])

    def send(self, request) -> str | None:
        connection = self.connected()
        if request.manner == "slow":
            connection.setblocking(False)
        try:
            if request.manner == "slow":
                connection.send(request.data)
                self.slow.append(connection)
                return None
            connection.sendall(request.data)
            if request.manner == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if request.manner in ("reset", "gone"):
                return None
            if request.manner == "half":
                connection.shutdown(socket.SHUT_WR)
            connection.settimeout(PATIENCE)
            first = connection.recv(16)
            if first and (first[:9] != b"HTTP/1.1 " or first[9:12] not in STATUSES | {b"100"}):
                return f"it answers {first!r}"
        except ConnectionError:  # the server refused what was sent
            pass
        except TimeoutError:
            pass
        finally:
            if request.manner != "slow":
                connection.close()
        return None

    def attempt(self, request) -> str | None:
        try:
            fault = self.send(request)
        except OSError as error:  # nobody listens
            fault = error
        if fault:
            return f"{self.name}: {fault} to {request.manner}: {request.data[:300]!r}"
        return None

    def trickle(self):
        """Keeps at most so many slow connections, and sends a byte on each."""
        while len(self.slow) > SLOW:
            self.slow.pop(0).close()
        for connection in self.slow:
            try:
                connection.send(b"a")
            except OSError:  # dropped, or full
                pass

    def attacked_by(self, count: int, proof: bytes):
        for _ in range(3):
            if not self.answer(proof).startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"{self.name} does not answer before the attack")
        idle = self.memory()
        requests = certain_requests()
        with ThreadPoolExecutor(CLIENTS) as pool:
            while count > 0:
                count -= len(requests)
                yield from pool.map(self.attempt, requests)
                self.trickle()
                fault = self.answers_others()
                yield fault
                if fault and self.process.poll() is not None:
                    return
                requests = [hostile_request(self.rng) for _ in range(25)]
        for connection in self.slow:
            connection.close()
        yield self.recovers(proof, idle)

    def answers_others(self) -> str | None:
        path = "/health" if self.name == "serve" else "/"
        try:
            got = self.answer(head(f"GET {path}"))[:100]
        except OSError as error:
            self.process.wait(SECONDS)
            got = f"{error}; exit code {self.process.returncode}"
        return None if got[:12] == b"HTTP/1.1 200" else f"{self.name}: {path} gives {got!r}"

    def recovers(self, proof: bytes, idle: int) -> str | None:
        """It answers as before, and has at most twice the memory."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            got, memory = self.answer(proof), self.memory()
            if got.startswith(b"HTTP/1.1 200") and memory <= 2 * idle:
                return None
            time.sleep(0.1)
        return f"{self.name}: {memory} KiB after {idle} KiB before the attack; {got[:100]!r}"

    def ends(self) -> str | None:
        """SIGTERM ends it, with half a request on each of many connections."""
        half = [self.connected() for _ in range(SLOW)]
        for connection in half:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: loc")
        self.process.send_signal(signal.SIGTERM)
        result = finish(self.process, self.folder, SECONDS)
        for connection in half:
            connection.close()
        return None if result.code == 0 else f"{self.name} does not end: {result.text()}"
