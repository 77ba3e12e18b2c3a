"""How even influence is: Lorenz curves, one line per strategy, with Gini's coefficient and Jain's index."""

from collections.abc import Sequence

from fairlag.analyse import fairness
from fairlag.analyse.curves import evenly
from fairlag.analyse.evidence import Influence
from fairlag.core.types import Floats
from fairlag.report.labels import with_deviation
from fairlag.report.page.charts import axis, plain_names, strategy_key
from fairlag.report.page.spec import Chart, Json, Named, View, numbers

_POINTS = 200


def lorenz_chart(shown: Sequence[tuple[Named, Influence]]) -> Chart:
    """The curves of the strategies that have one."""
    names = plain_names([named.label for named, _ in shown])
    equal = {
        "type": "scatter",
        "mode": "lines",
        "name": "equality",
        "x": [0, 1],
        "y": [0, 1],
        "line": {"color": "@faint", "dash": "dash", "width": 1.5},
        "hovertemplate": "equality: any share of the clients has the same share of all weight<extra></extra>",
    }
    lines = [
        _line(named, name, found, curve)
        for (named, found), name in zip(shown, names, strict=True)
        if (curve := found.lorenz()) is not None
    ]
    layout = {
        "xaxis": axis("share of clients, least influence first", range=[0, 1], tickformat=".0%"),
        "yaxis": axis("share of all weight", range=[0, 1.02], tickformat=".0%"),
    }
    return Chart(
        name="lorenz",
        title="Lorenz curves of influence",
        reading=(
            "One line per strategy: the share of all weight that the clients with the least influence have together. "
            "The closer to the diagonal, the more even."
        ),
        views={"": View([equal, *lines], layout)},
        highlights={strategy_key(named.place): named.label for named, found in shown if found.lorenz() is not None},
        height=420,
    )


def _line(named: Named, name: str, found: Influence, curve: tuple[Floats, Floats]) -> Json:
    kept = evenly(curve[0], _POINTS)
    gini = with_deviation(found.over_seeds(fairness.gini), "{:.3f}")
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "legendgroup": strategy_key(named.place),
        "x": numbers(curve[0][kept]),
        "y": numbers(curve[1][kept]),
        "line": {"color": named.colour, "dash": named.dash, "width": 2},
        "hovertemplate": (
            "%{fullData.name}<br>the %{x:.1%} of clients with the least influence have %{y:.2%} of all weight<br>"
            f"Gini {gini}, Jain {jain_in_words(found)}<extra></extra>"
        ),
    }


def jain_in_words(found: Influence) -> str:
    """Jain's index over seeds."""
    return with_deviation(found.jain, "{:.3f}")
