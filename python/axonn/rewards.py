"""Rewards by a function of Python: a thread that answers the relay which a run starts."""
from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import threading
import traceback
from typing import Any, Callable, Dict, Mapping, Union

Reward = Callable[[Dict[str, Any]], Union[None, float, Mapping[str, Any]]]

# Is the run's rl.reward_program: hands lines to the interpreter that has the function.
_RELAY = """import socket, sys
to = socket.socket(socket.AF_UNIX)
to.connect(sys.argv[1])
lines = to.makefile("rw", encoding="utf-8")
for line in sys.stdin:
    lines.write(line)
    lines.flush()
    sys.stdout.write(lines.readline())
    sys.stdout.flush()
"""


def serve(reward: Reward, folder: str) -> str:
    """Starts a thread that finds rewards, with a socket in the folder. Returns the command for
    rl.reward_program. An answer at which the function raises an exception, which is shown, has no
    reward."""
    path = os.path.join(folder, "reward")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def reply(line: str) -> str:
        try:
            return json.dumps(reward(json.loads(line)), default=float)
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc()
            return "the reward function raised an exception"

    def answer(connection: socket.socket) -> None:
        with connection, connection.makefile("rw", encoding="utf-8") as lines:
            for line in lines:
                lines.write(reply(line) + "\n")
                lines.flush()

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return " ".join(["exec", *map(shlex.quote, (sys.executable, "-c", _RELAY, path))])
