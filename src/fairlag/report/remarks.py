"""What an audit left out or met with, as sentences below its table."""

from collections.abc import Iterator, Sequence

from fairlag.analyse.audit import StrategyAudit
from fairlag.analyse.throttling import COMPILED_UPDATES, SERVER_UPDATES, Throttling
from fairlag.runtime.compiled import available
from fairlag.runtime.presence import NOTHING_MORE

_SLOWLY = (
    "Compiled loops are not installed, so trials were short. After `pip install 'fairlag[fast]'` they may have "
    f"{COMPILED_UPDATES // SERVER_UPDATES} times as many updates."
)


def remarks(audits: Sequence[StrategyAudit]) -> list[str]:
    """Each remark once, after the names of the strategies it is about."""
    about: dict[str, list[str]] = {}
    for audit in audits:
        for remark in _of(audit):
            about.setdefault(remark, []).append(audit.label)
    everyone = len(audits) > 1
    found = [
        f"{'All strategies' if everyone and len(labels) == len(audits) else ', '.join(labels)}: {remark}"
        for remark, labels in about.items()
    ]
    if not available() and any(audit.throttling.advice or audit.timings.left_out for audit in audits):
        found.append(_SLOWLY)
    return found


def _of(audit: StrategyAudit) -> Iterator[str]:
    if audit.unseen:
        yield (
            "it reads updates or losses, which exist only in training; "
            "it is audited as if the model never changed and all losses were equal."
        )
    if audit.throttling.advice:
        yield _advice(audit.throttling)
    if audit.timings.left_out:
        yield f"not tried: {audit.timings.left_out}."
    yield from audit.bounds.warnings if audit.bounds else ()
    for count, words in (
        (audit.partial, "aggregations were partial: all clients were waiting for a buffer that was not full"),
        (audit.lost, "tasks were lost: their clients left or vanished"),
        (audit.refused, "updates were refused"),
        (audit.cancelled, "tasks were cancelled: their rounds ended without them"),
    ):
        if count:
            yield f"{count:,} {words} (all seeds together)."
    if NOTHING_MORE.reason in audit.reasons:
        yield f"a run ended early: {NOTHING_MORE.reason}."


def _advice(throttling: Throttling) -> str:
    if throttling.tried:
        return f"the errors of throttling are larger than {throttling.wanted:.0%}; {throttling.advice} suffices."
    if throttling.rough == throttling.advice:
        return f"throttling was not tried; {throttling.advice} suffices."
    return (
        f"throttling was not tried; {throttling.rough} suffices for a rough answer, {throttling.advice} for errors of "
        f"{throttling.wanted:.0%}."
    )
