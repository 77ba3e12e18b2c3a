"""What `fairlag doctor` shows: a page about this machine, and the checks of its self-test."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairlag.lab.machine import Extra, Machine
from fairlag.lab.selftest import Check

_YES, _NO, _ABSENT = Text("✓", style="green"), Text("✗", style="bold red"), Text("–", style="yellow")
_NAME = 22
"""The width of the names, the same in all sections."""

_Row = tuple[Text, str, str]
"""A mark, a name, and what there is to say."""


def machine_page(machine: Machine) -> RenderableType:
    """Everything about the machine, section by section."""
    sections = {
        "This machine": _about(machine),
        "Devices": _devices(machine),
        "Data sets": _data(machine),
        "Extras": [(_YES if each.complete else _ABSENT, each.name, _packages(each)) for each in machine.extras],
    }
    return Group(*(Group(heading(title), _rows(rows), Text()) for title, rows in sections.items()))


def check_line(check: Check) -> RenderableType:
    """One check of the self-test."""
    return _rows([(_YES if check.passed else _NO, check.name, f"{check.found} · {check.seconds:.1f} s")])


def verdict(checks: Iterable[Check]) -> RenderableType:
    """The end of the self-test, in one sentence."""
    done = list(checks)
    failed = [check.name for check in done if not check.passed]
    if failed:
        return Text(f"\n{len(failed)} of {len(done)} checks failed: {', '.join(failed)}", style="bold red")
    return Text(f"\nAll {len(done)} checks passed in {sum(check.seconds for check in done):.0f} s", style="bold green")


def heading(title: str) -> Text:
    """The title of a section."""
    return Text(title, style="bold")


def _about(machine: Machine) -> list[_Row]:
    room = "cannot be written" if machine.free is None else f"{_size(machine.free)} free"
    cores = f"{machine.cores} of {machine.all_cores}" if machine.cores < machine.all_cores else str(machine.cores)
    memory = "" if machine.memory is None else f" · {_size(machine.memory)} memory"
    versions = machine.versions
    return [
        (_YES, "Python", f"{machine.python} · {machine.executable}"),
        (_YES, "fairlag", f"{versions['fairlag']} · {machine.place}"),
        (_YES, "PyTorch", f"{versions['torch']} · threads by default: {machine.threads}"),
        (_YES, "NumPy", versions["numpy"]),
        (_YES, "system", machine.system),
        (_YES, "cores", f"{cores}{memory}"),
        (_NO if machine.free is None else _YES, "folder for runs", f"{machine.runs} · {room}"),
    ]


def _devices(machine: Machine) -> list[_Row]:
    sizes = ["" if each.memory is None else f" · {_size(each.memory)}" for each in machine.devices]
    rows = [(_YES, each.name, each.model + size) for each, size in zip(machine.devices, sizes, strict=True)]
    if len(rows) == 1:
        rows.append((_ABSENT, "accelerator", "PyTorch finds none: models are trained on the CPU"))
    return rows


def _data(machine: Machine) -> list[_Row]:
    rows = [
        (_ABSENT, each.name, f"not found; `fairlag data get {each.name}` downloads it")
        if each.found is None
        else (_YES, each.name, each.found)
        for each in machine.data
    ]
    if missing := next((each for each in machine.data if each.found is None), None):
        rows.append((Text(), "looked for in", ", ".join(missing.looked_for).replace(missing.name, "NAME")))
    return rows


def _packages(extra: Extra) -> str:
    there = ", ".join(f"{name} {version}" for name, version in extra.packages.items() if version is not None)
    absent = ", ".join(name for name, version in extra.packages.items() if version is None)
    missing = f"{absent} missing: {extra.install}" if absent else ""
    return "; ".join(each for each in (there, missing) if each)


def _rows(rows: Iterable[_Row]) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=2, justify="right")
    grid.add_column(width=_NAME, no_wrap=True)
    grid.add_column(overflow="fold")
    for mark, name, words in rows:
        grid.add_row(mark, name, Text(words))
    return grid


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
