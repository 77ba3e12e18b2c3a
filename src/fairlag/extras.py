"""Optional packages: imported here, so that a missing or broken one ends with one sentence."""

from importlib import import_module
from typing import Any

from fairlag.errors import ExtraError, FairlagError


def optional(module: str, extra: str, purpose: str) -> Any:
    """A module of an optional package; refuses one that is missing, and one that is there but cannot be imported.

    >>> optional("math", "fast", "adding").fsum([1, 2])
    3.0
    >>> optional("no_such_package.part", "fast", "adding")
    Traceback (most recent call last):
    fairlag.errors.ExtraError: adding needs the extra `fast`: pip install 'fairlag[fast]'
    """
    package, install = module.partition(".")[0], f"'fairlag[{extra}]'"
    try:
        import_module(package)  # first, so that the error names it if it is missing
        return import_module(module)
    except (KeyboardInterrupt, MemoryError, FairlagError):
        raise
    except BaseException as error:  # a broken library may raise anything: Rust's panics are not Exceptions
        if isinstance(error, ModuleNotFoundError) and "." not in (error.name or "."):
            raise ExtraError(f"{purpose} needs the extra `{extra}`: pip install {install}") from None
        why = " ".join(str(error).split()) or type(error).__name__
        raise ExtraError(
            f"{purpose} needs {package}, which is installed but cannot be imported ({why}): "
            f"pip install --force-reinstall {install}"
        ) from error
