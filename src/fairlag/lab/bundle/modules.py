"""Finds the source files of a user's own modules, and of what they import, without importing anything."""

import ast
from collections.abc import Iterator
from pathlib import Path


def modules(name: str, roots: list[Path]) -> dict[str, Path]:
    """The source files of a module, and of all that it imports, as far as they are in one of the folders.

    They are parsed and not imported. The keys are their paths relative to that folder; empty if it is not there.
    """
    found: dict[str, Path] = {}
    waiting = [name]
    seen = set[str]()
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        for path, file in _sources(each, roots).items():
            if path not in found:
                found[path] = file
                package = Path(path).parent.parts
                waiting += _imports(file, package)
    return found


def _sources(name: str, roots: list[Path]) -> dict[str, Path]:
    """The file of a module, and those of the packages that it is in."""
    parts = name.split(".")
    for root in roots:
        base = Path(*parts)
        own = [each for each in (base / "__init__.py", base.with_name(f"{base.name}.py")) if (root / each).is_file()]
        if own:
            above = [Path(*parts[:depth], "__init__.py") for depth in range(1, len(parts))]
            paths = [*(each for each in above if (root / each).is_file()), own[0]]
            return {path.as_posix(): root / path for path in paths}
    return {}


def _imports(file: Path, package: tuple[str, ...]) -> Iterator[str]:
    """The modules that a file may import: from a package, also what may be names in it."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base:
                yield base
            yield from (f"{base}.{alias.name}".strip(".") for alias in node.names)
