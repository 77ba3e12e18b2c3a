"""The child side of children.py: a worker process sets itself up and calls the function that it was started for."""

import io
import os
import pickle
import select
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fairlag.errors import InputError


class Setup(NamedTuple):
    """The first message to a process: the command line of its parent, and the user's script."""

    arguments: list[str]
    script: str | None
    package: str | None


class Failed(NamedTuple):
    """What a process sends if it cannot read its first messages."""

    reason: str


class _StartedAgain(BaseException):
    """Raised where the user's script starts runs."""


_setup = Setup([], None, None)
_script: ModuleType | None = None
"""The user's script as a module, if it was read."""
_reading = False


def stop_if_started_again() -> None:
    """Called first by code that starts runs: a script that is only read for its functions must not start them again."""
    if _reading:
        raise _StartedAgain


def main(line: Connection) -> None:
    """The main function of a process."""
    global _setup
    _setup = line.recv()
    sys.argv = list(_setup.arguments)
    sys.stdout = sys.stderr  # output of the user's code must not mix with results
    threading.Thread(target=_end_with_the_parent, args=(line.fileno(),), daemon=True).start()
    try:
        target, given = received(line)
    except EOFError:
        return
    except Exception as error:
        line.send(Failed(" ".join(str(error).split())))
        return
    target(line, *given)


def received(line: Connection) -> Any:
    """The next message. The user's script is read only if the message contains something that the script defines."""
    return _Unpickler(io.BytesIO(line.recv_bytes())).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module != "__main__":
            return super().find_class(module, name)
        if _script is None:
            _read_script(name)
        try:
            return super().find_class(_MAIN, name)
        except AttributeError:
            raise InputError(
                f"{_setup.script!r} defines {name!r} only after its first run: move the definition up, or start runs "
                "under if __name__ == '__main__'"
            ) from None


_MAIN = "__mp_main__"
"""The name of the parent's script in Python's multiprocessing: `if __name__ == "__main__"` is false in it."""


def _read_script(name: str) -> None:
    """Reads the user's script as a module, up to where it starts runs: everything that was defined by then."""
    global _script, _reading
    if _setup.script is None or not Path(_setup.script).is_file():
        raise InputError(f"{name!r} is not in a file that a worker can read: put it into a separate module")
    _script = sys.modules["__main__"] = sys.modules[_MAIN] = ModuleType(_MAIN)
    _script.__file__, _script.__package__ = _setup.script, _setup.package
    _reading = True
    try:
        exec(compile(Path(_setup.script).read_bytes(), _setup.script, "exec"), vars(_script))
    except _StartedAgain:
        pass
    except (Exception, SystemExit) as error:
        raise InputError(f"{_setup.script!r} cannot be read by a worker ({type(error).__name__}: {error})") from error
    finally:
        _reading = False


def _end_with_the_parent(line: int) -> None:
    """Ends this process when its parent has ended, which closes the other end of the connection."""
    watch = select.poll()
    watch.register(line, 0)
    watch.poll()
    os._exit(1)
