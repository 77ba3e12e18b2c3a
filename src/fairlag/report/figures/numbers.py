"""The numbers in a figure, read from what was drawn, so that they cannot differ from the picture."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def beside(file: Path) -> Path:
    """The file for the numbers in a figure; not only its suffix differs, so that it replaces no data.

    >>> beside(Path("paper/curve.pdf")).name
    'curve.numbers.csv'
    """
    return file.with_suffix(".numbers.csv")


def numbers(figure: "Figure") -> "pd.DataFrame":
    """One row per point, bar, point of a line or corner of an area: its panel, what it is, its label, and where it is.

    A vertical bar has its middle as x and its value as y, a horizontal one the other way round.

    >>> from matplotlib.figure import Figure
    >>> figure = Figure()
    >>> axes = figure.add_subplot(title="All labels")
    >>> drawn = axes.plot([1, 2], [0.5, 0.75], label="FedAvg")
    >>> print(numbers(figure).to_csv(index=False).strip())
    panel,title,kind,label,x,y
    1,All labels,line,FedAvg,1.0,0.5
    1,All labels,line,FedAvg,2.0,0.75
    """
    import pandas as pd

    rows = (
        (place, _title(axes), kind, "" if label.startswith("_") else label, float(x), float(y))
        for place, axes in enumerate(figure.axes, 1)
        for kind, label, x, y in _marks(axes)
    )
    return pd.DataFrame(rows, columns=["panel", "title", "kind", "label", "x", "y"])


def _title(axes: "Axes") -> str:
    return " ".join(axes.get_title("left").split() or axes.get_title().split())


def _marks(axes: "Axes") -> Iterator[tuple[str, str, float, float]]:
    from matplotlib.collections import PathCollection
    from matplotlib.container import BarContainer

    for line in axes.get_lines():
        points = np.column_stack([np.asarray(each, np.float64) for each in line.get_data()])
        yield from (("line", str(line.get_label()), x, y) for x, y in points)
    for bars in axes.containers:
        if isinstance(bars, BarContainer):
            for bar, value in zip(bars.patches, np.asarray(bars.datavalues, np.float64), strict=True):
                x, y = bar.get_center()
                at = (value, y) if bars.orientation == "horizontal" else (x, value)
                yield "bar", str(bars.get_label()), *at
    for drawn in axes.collections:
        label = str(drawn.get_label())
        if isinstance(drawn, PathCollection):
            yield from (("point", label, x, y) for x, y in np.asarray(drawn.get_offsets(), np.float64))
        else:
            for path in drawn.get_paths():
                yield from (("area", label, x, y) for x, y in np.asarray(path.vertices, np.float64))
