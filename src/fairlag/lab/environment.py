"""What the last bits of a run's numbers may depend on, besides fairlag, NumPy and PyTorch, which it notes by name."""

import platform
from contextlib import suppress
from importlib import metadata

_LIBRARIES = ("scipy", "pandas", "scikit-learn")


def environment(*, trained: bool) -> dict[str, str]:
    """Python, the system, the kind of processor, and further libraries; `trained` if the run uses PyTorch.

    >>> sorted(environment(trained=False))
    ['libc', 'machine', 'pandas', 'python', 'scikit-learn', 'scipy', 'system']
    """
    found = {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()).strip(),
        **{name: metadata.version(name) for name in _LIBRARIES},
    }
    if trained:
        import torch

        found["cpu"] = torch.backends.cpu.get_cpu_capability()
    return found


def versions() -> dict[str, str]:
    """The same for this process, with the versions of fairlag and of the libraries that runs note by name."""
    found = environment(trained=True)
    for name in ("fairlag", "numpy", "torch", "numba"):
        with suppress(metadata.PackageNotFoundError):  # numba is in an extra
            found[name] = metadata.version(name)
    return found
