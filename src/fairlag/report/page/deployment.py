"""What a strategy means for a deployed fleet: speed, work, traffic, and when influence has settled."""

from collections.abc import Sequence

from fairlag.analyse.audit import StrategyAudit
from fairlag.report.answer import DEPLOYMENT, deployment_cells, device_cells
from fairlag.report.labels import sentences
from fairlag.report.page.charts import MOST_GROUPS, left_out
from fairlag.report.page.spec import Named, Section, Table
from fairlag.text.numerals import NONE

_LEAD = "What deployment would take: how fast each strategy is, and how much each device has to do."
_HEAD = ("", "versions/h", "updates/day", "MB/day", "lost", "waiting", "settled")


def deployment_section(shown: Sequence[tuple[Named, StrategyAudit]]) -> Section:
    """One row per strategy, followed by one row per group with the work of one of its devices."""
    rows, marks = [], []
    for named, audit in shown:
        rows.append([named.label, *deployment_cells(audit)])
        marks.append(named.colour)
        for place, group in enumerate(audit.groups[:MOST_GROUPS]):
            rows.append([f"{named.label}, {group.name}", NONE, *device_cells(group.deployment), *[NONE] * 3])
            marks.append(named.group_colour(place))
    table = Table("Speed, work and traffic", _HEAD, rows, marks)
    reading = sentences([f"{name}: {meaning}" for name, meaning in DEPLOYMENT.items()])
    remarks = [reading, *left_out(max(len(audit.groups) for _, audit in shown))]
    return Section("deployment", "Deployment", _LEAD, tables=[table], remarks=remarks)
