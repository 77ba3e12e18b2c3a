"""The algorithms of the zoo as tables in Markdown, one per family: the whole text of docs/algorithms.md."""

from collections.abc import Mapping
from inspect import Parameter
from itertools import groupby

from fairlag.zoo import ALGORITHMS, Algorithm
from fairlag.zoo.needs import needs

_HEAD = """# The algorithms

Generated from the docstrings of [the zoo](../src/fairlag/zoo) by `fairlag strategies --markdown > docs/algorithms.md`;
a test fails if it is out of date. Every algorithm is a composition of [rules](../src/fairlag/rules), so any part can be
combined with any other: `replace(fedstaleweight(), apply=adam(0.01))`.

**n** clients, client i with **n_i** of all **N** training examples; **w_v** the model of version v; **Δ** an update,
trained from version u, **x** = w_u + Δ its sender's model, **τ** = v − u its staleness; **b** or **K** updates in a
buffer; **η_g** = `lr` the server's step size, **η_ℓ** the clients'; **m** a first, **s** a second moment of the steps.

**Statistics** are the float buffers of a model, such as BatchNorm's running mean and variance. No formula below applies
to them: adding their stale changes makes them diverge. A client sends their values z_j, and the server mixes these with
its own z by the weights α_j that the algorithm gives the updates:
z ← (1 − p) z + p Σ_j a_j z_j / Σ_j a_j, with a_j = max(α_j, 0) and p = min(1, Σ_j a_j).
So a statistic stays between the smallest and largest value of clients and server, whatever the weights add up to, and a
variance is never negative; an update with a negative running variance is refused. A trimmed mean trims the z_j like
updates. Server rules, edits, drift and models kept by a reduction concern only the parameters, including frozen ones.
Integer buffers, such as BatchNorm's count of batches, keep their first value and are never sent back. Your own
reduction must declare that it averages (`@fairlag.rules.mixes_statistics`), or models with statistics are refused.

**Needs** is read from the rules of an algorithm: *rounds* if the server waits for certain clients; *memory* if
updates or models are kept from one version to the next, and by which rule; *identities* if the server keeps a history
of each client, or treats updates of the same client together; *reads* lists the rules that read single updates, which
secure aggregation hides. [Conformance](conformance.md) lists what is proved of each algorithm.
"""

_TABLE = """
## {family}

| `use` | what it does | formula | needs | departs from its paper | parameters | reference |
|---|---|---|---|---|---|---|
"""


def markdown() -> str:
    """One table per family and one row per algorithm, in the order of the registry.

    >>> markdown().splitlines()[-1].startswith("| `")
    True
    """
    families = groupby(ALGORITHMS.values(), lambda algorithm: algorithm.family)
    return _HEAD + "".join(
        _TABLE.format(family=family) + "".join(map(_row, algorithms)) for family, algorithms in families
    )


def needed(algorithm: Algorithm) -> list[str]:
    """What an algorithm needs with its default parameters, in words.

    >>> needed(ALGORITHMS["asofed"])
    ['memory (server: replacing(), clients: 2 vectors)', 'identities', 'reads (reduce)']
    """
    found = needs(algorithm.make())
    words = ["rounds"] * found.rounds + [f"memory ({found.memory})"] * bool(found.memory)
    return words + ["identities"] * found.identities + [f"reads ({', '.join(found.reads)})"] * bool(found.reads)


def _row(algorithm: Algorithm) -> str:
    cells = (
        f"`{algorithm.name}` {algorithm.title}",
        algorithm.description,
        algorithm.formula,
        "; ".join(needed(algorithm)) or "nothing",
        algorithm.departs,
        _parameters(algorithm.parameters),
        algorithm.reference,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _parameters(parameters: Mapping[str, Parameter]) -> str:
    return ", ".join(f"`{name} = {written(parameter.default)}`" for name, parameter in parameters.items())


def written(default: object) -> str:
    """A default as written in an experiment file."""
    return '"none"' if default is None else f'"{default}"' if isinstance(default, str) else str(default).lower()
