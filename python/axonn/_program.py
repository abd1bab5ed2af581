"""The program axonn as a process: where it is, its arguments, its errors."""
from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, Mapping, NoReturn, Sequence, Tuple, Union

PathLike = Union[str, "os.PathLike[str]"]

USAGE, STOPPED = 2, 75  # exit codes


class Error(RuntimeError):
    """The program failed. The message is the program's own, or says by which signal it ended."""


class UsageError(Error, ValueError):
    """What was asked cannot be done: a wrong key, value, file or grid. The message says more."""


def program() -> str:
    """The path of the program: the package's own or, without one, that of PATH."""
    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_program", "bin", "axonn")
    if os.access(inside, os.X_OK):
        return inside
    found = shutil.which("axonn")
    if found is None:
        raise Error("the program axonn is neither in the package nor on PATH; install the wheel, "
                    "or build it and add its folder to PATH (docs/python.md)")
    return found


def main() -> NoReturn:
    """The console script: becomes the program."""
    try:
        path = program()
    except Error as error:
        sys.exit(f"error: {error}")
    os.execv(path, ["axonn", *sys.argv[1:]])


def value_text(key: str, value: Any) -> str:
    """A value of a key as a flag has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        parts = [value_text(key, each) for each in value]
        if any("," in part for part in parts):
            raise UsageError(f"{key}: a comma separates the values of a list, so none may have "
                             "one; put the list into a file of configuration")
        return ",".join(parts)
    return str(value)


def key_flags(keys: Mapping[str, Any]) -> List[str]:
    """Flags for keys of a configuration: {"training.steps": 20}, or {"training": {"steps": 20}}."""
    flags: List[str] = []
    for name, value in keys.items():
        if isinstance(value, Mapping):
            flags += key_flags({f"{name}.{key}": each for key, each in value.items()})
        elif value is not None:
            flags += [f"--{name}", value_text(name, value)]
    return flags


def option_flags(options: Mapping[str, Any]) -> List[str]:
    """Flags of a command: prompt_lengths=[32, 64] is --prompt-lengths 32,64, and full=True is
    --full. None and False are left out."""
    flags: List[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            flags.append(flag)
        elif value is not None and value is not False:
            flags += [flag, value_text(name, value)]
    return flags


def split_keys(keys: Mapping[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Keys of a configuration, which have a section, and a command's own options."""
    own = {name: value for name, value in keys.items()
           if "." not in name and not isinstance(value, Mapping)}
    return {name: value for name, value in keys.items() if name not in own}, own


def fault(words: Sequence[str], code: int, errors: str) -> Error:
    """The exception for a process that ended with this code and these errors."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return Error(f"axonn {words[0]} was ended by the signal {name}; it wrote: "
                     f"{errors.strip()!r}")
    at = errors.rfind("error: ")
    text = errors[at + len("error: "):].strip() if at >= 0 else errors.strip()
    kind = UsageError if code == USAGE else Error
    return kind(text or f"axonn {words[0]} ended with the code {code}")


def start(words: Sequence[str], **streams: Any) -> "subprocess.Popen[bytes]":
    """Starts the program. Ctrl-C does not reach it: whoever waits passes it on, once."""
    return subprocess.Popen([program(), *words], start_new_session=True, **streams)


def end(process: "subprocess.Popen[bytes]", number: int) -> int:
    """Sends a signal, if the process still runs, and waits for its end."""
    if process.poll() is None:
        process.send_signal(number)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # a second one ends a training without a checkpoint
            process.send_signal(signal.SIGINT)


def show(lines: str) -> None:
    """Shows the notes and warnings of a process."""
    for line in lines.splitlines():
        if line.startswith(("note: ", "warning: ")):
            print(line, file=sys.stderr)


def run(words: Sequence[str], echo: bool = False) -> str:
    """Runs a command to its end. Returns its standard output, which echo also prints as it comes;
    raises Error and UsageError."""
    with tempfile.TemporaryFile() as errors:
        process = start(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        out: List[str] = []
        try:
            for line in process.stdout:
                out.append(line.decode(errors="replace"))
                if echo:
                    print(out[-1], end="", flush=True)
            process.wait()
        except BaseException:
            end(process, signal.SIGINT)
            raise
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    if process.returncode != 0:
        raise fault(words, process.returncode, text)
    show(text)
    return "".join(out)


def shown_config(words: Sequence[str]) -> Dict[str, str]:
    """The values of a run's configuration by their keys: {"training.steps": "50", ...}."""
    values: Dict[str, str] = {}
    section = ""
    for line in run([*words, "--print-config"]).splitlines():
        key = re.match(r'(\w+) = (?:"((?:[^"\\]|\\.)*)"|([^\s#]+))', line)
        if line.startswith("["):
            section = line.strip("[]")
        elif key is not None:
            values[f"{section}.{key[1]}"] = key[3] if key[2] is None else json.loads(f'"{key[2]}"')
    return values


def config_words(config: Union[PathLike, Mapping[str, Any], None]) -> List[str]:
    """The arguments for a file of configuration, or for a dict of sections."""
    if config is None:
        return []
    if not isinstance(config, Mapping):
        return [os.fspath(config)]
    for section, keys in config.items():
        if not isinstance(keys, Mapping) and "." not in section:
            raise UsageError(f"the configuration's {section!r} is no section; wanted a dict as "
                             "{'training': {'steps': 20}}. Entries [[stage]] need a file")
    return key_flags(config)
