"""The program axonn as a process: where it is, its arguments, its errors."""
from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any, Dict, Iterator, List, Mapping, NoReturn, Sequence, Tuple, Union

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
    if isinstance(value, float):
        return repr(value)
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


def toml_value(value: Any) -> str:
    import json

    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {toml_value(each)}" for key, each in value.items()) + "}"
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise UsageError(f"a value of the configuration is {value!r}; wanted a text, a number, "
                         "true or false, or a list of them")
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_lines(config: Mapping[str, Any]) -> Iterator[str]:
    """A configuration of sections as TOML; a list of sections is repeated, as [[stage]]."""
    for section, keys in config.items():
        entries = keys if isinstance(keys, (list, tuple)) else [keys]
        for entry in entries:
            if not isinstance(entry, Mapping):
                raise UsageError(f"the configuration's {section!r} is no section; wanted a dict, "
                                 "as {'training': {'steps': 20}}")
            yield f"[[{section}]]" if isinstance(keys, (list, tuple)) else f"[{section}]"
            for key, value in entry.items():
                if value is not None:
                    yield f"{key} = {toml_value(value)}"


def config_words(config: Union[PathLike, Mapping[str, Any], None], folder: str) -> List[str]:
    """The argument for a file, or for a dict, which is written into the folder."""
    if config is None:
        return []
    if not isinstance(config, Mapping):
        return [os.fspath(config)]
    path = os.path.join(folder, "config.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(toml_lines(config)) + "\n")
    return [path]

