"""Where the fleet settles if updates cost their senders something: a table with remarks."""

from collections.abc import Sequence

from fairlag.analyse.audit import StrategyAudit
from fairlag.analyse.settling import Equilibrium, Untried
from fairlag.report.labels import sentences
from fairlag.report.page.charts import MOST_GROUPS, left_out
from fairlag.report.page.spec import Named, Section, Table
from fairlag.report.settled import READING, TITLE, cells, remarks, summary

_LEAD = (
    "Here, updates cost their senders something. The payoff of a client is its influence minus the cost of its "
    "updates. The fleet settles if no client gains by changing its speed."
)


def settled_sections(shown: Sequence[tuple[Named, StrategyAudit]]) -> list[Section]:
    """One row per strategy and group; no section if updates cost nothing."""
    rests = [(named, audit.rest) for named, audit in shown if audit.rest is not None]
    if not rests:
        return []
    notes, rows, marks = [], [], []
    for named, rest in rests:
        if isinstance(rest, Untried):
            notes.append(f"{named.label}: not computed: {rest}.")
            continue
        notes += [f"{named.label}: {words}" for words in (f"{summary(rest)}.", *remarks(rest))]
        for place, group in enumerate(rest.groups[:MOST_GROUPS]):
            rows.append([f"{named.label}, {group.name}", *cells(group).values()])
            marks.append(named.group_colour(place))
    known = [rest for _, rest in rests if isinstance(rest, Equilibrium)]
    head = ("strategy, group", *(cells(known[0].groups[0]) if known else ()))
    tables = [Table(TITLE, head, rows, marks)] if known else []
    many = left_out(max((len(rest.groups) for rest in known), default=0))
    return [
        Section("settled", "Where the fleet settles", _LEAD, tables=tables, remarks=[*notes, sentences(READING), *many])
    ]
