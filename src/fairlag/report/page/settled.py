"""Where the fleet settles if updates cost their senders something: a table, and what must be known of it."""

from collections.abc import Sequence

from fairlag.analyse.audit import StrategyAudit
from fairlag.analyse.settling import Equilibrium, Untried
from fairlag.report.page.charts import MOST_GROUPS, left_out
from fairlag.report.page.spec import Named, Section, Table
from fairlag.report.settled import READING, TITLE, cells, remarks, summary

_LEAD = (
    "Updates cost their senders something here. A client that chooses its own speed gets its influence less the cost "
    "of its updates. The fleet settles at speeds at which nobody gains by another one."
)


def settled_sections(shown: Sequence[tuple[Named, StrategyAudit]]) -> list[Section]:
    """One row per strategy and group; no section if nothing costs anything."""
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
    reading = ". ".join(f"{words[0].upper()}{words[1:]}" for words in READING)
    many = left_out(max((len(rest.groups) for rest in known), default=0))
    return [Section("settled", "Where the fleet settles", _LEAD, tables=tables, remarks=[*notes, f"{reading}.", *many])]
