"""`fairlag.figure`: figures for papers, in a notebook."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from struct import unpack

from fairlag.lab.damaged import made_of
from fairlag.lab.run import Run
from fairlag.lab.runs import Runs
from fairlag.report.figures.identity import SIZES, check_format
from fairlag.report.figures.kinds import Kind


def figure(
    runs: Runs,
    kind: str = "curve",
    *,
    size: str = "double",
    begin: float | None = None,
    until: float | None = None,
) -> "Picture":
    """Draws the curve (of the leading metric), influence, staleness, ranks, privacy, timeline or incentives of runs.

    `runs` are Runs, or the folder with them; `size` is "single" or "double", the columns of a paper. A timeline
    shows the virtual time from `begin` to `until`.

    >>> import fairlag
    >>> experiment = fairlag.load("demo").checked(aggregations=5)
    >>> figure(fairlag.simulate(experiment, strategy="fairshare", workers=1), "influence", size="single")
    <influence of 1 run, 1020 × 780 pixels; .save('figure.pdf') keeps it>
    """
    chosen = Kind(kind, size, begin, until)
    return made_of(runs, lambda found: Picture(chosen, found))


class Picture:
    """A figure that a notebook shows, and that can be saved."""

    def __init__(self, kind: Kind, runs: Sequence[Run]) -> None:
        self._kind, self._runs = kind, runs
        with BytesIO() as sheet:
            kind.draw(runs, sheet)
            self.png = sheet.getvalue()

    def save(self, file: str | Path) -> None:
        """Draws it into a file: .png, .pdf or .svg."""
        path = Path(file)
        check_format(path)
        self._kind.draw(self._runs, path)

    @property
    def pixels(self) -> tuple[int, int]:
        """Width and height, from the header of the PNG."""
        width, height = unpack(">II", self.png[16:24])
        return width, height

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """One inch of paper is 100 CSS pixels, which are finer on high-resolution screens."""
        width, height = self.pixels
        across = 100 * SIZES[self._kind.size]
        return self.png, {"width": round(across), "height": round(across * height / width)}

    def __repr__(self) -> str:
        width, height = self.pixels
        runs = f"{len(self._runs)} run{'s' if len(self._runs) > 1 else ''}"
        return f"<{self._kind.name} of {runs}, {width} × {height} pixels; .save('figure.pdf') keeps it>"
