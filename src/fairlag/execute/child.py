"""The other side of children.py: a process of our own settles in, and calls the function that it was started for."""

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
    """What a process is told before anything else: the command line of its parent, and the user's script."""

    arguments: list[str]
    script: str | None
    package: str | None


class Failed(NamedTuple):
    """What a process says if it cannot even be told what to do."""

    reason: str


class _StartedAgain(BaseException):
    """The user's script has come to where it starts runs."""


_setup = Setup([], None, None)
_script: ModuleType | None = None
"""What was read of the user's script, if anything was."""
_reading = False


def stop_if_started_again() -> None:
    """Whoever starts runs calls this first: a script that is only read for its functions must not start them again."""
    if _reading:
        raise _StartedAgain


def live(line: Connection) -> None:
    """The life of a process."""
    global _setup
    _setup = line.recv()
    sys.argv = list(_setup.arguments)
    sys.stdout = sys.stderr  # what a user's code prints must not mix with results
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
    """The next message; the user's script is read if, and only if, something in it is the script's own."""
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
"""What Python's own multiprocessing calls the script of a parent: so `if __name__ == "__main__"` is false in it."""


def _read_script(name: str) -> None:
    """The user's script as a module, up to where it starts runs: all that was there when they were started."""
    global _script, _reading
    if _setup.script is None or not Path(_setup.script).is_file():
        raise InputError(f"{name!r} is not in a file that a worker could read: put it into a module of its own")
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
    """Nobody works for a parent that is gone: then the other end of the line is closed."""
    watch = select.poll()
    watch.register(line, 0)
    watch.poll()
    os._exit(1)
