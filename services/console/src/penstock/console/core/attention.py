"""What an operator should look at, as sentences: the most urgent first. Pure.

A new kind is one function that is named in ``KINDS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from penstock.console.core.promises import Promise
from penstock.views import source_state, wording

Severity = Literal["urgent", "warning", "note"]
_ORDER: dict[str, int] = {"urgent": 0, "warning": 1, "note": 2}
MOST_SHOWN = 8


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to look at.

    Attributes:
        kind: for programs; the same thing has the same kind and subject each time.
        subject: pool, queue or host that it is about; empty for the installation.
        text: what is wrong and what it means, as a sentence.
        link: page that shows more.
    """

    kind: str
    severity: Severity
    subject: str
    text: str
    link: str


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one function that died lately of one failure.

    Attributes:
        fingerprint: of their group of failures; empty where they have none.
    """

    function: str
    error_kind: str
    jobs: int
    fingerprint: str = ""


class UnservedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of which no worker is given jobs.

    Attributes:
        is_paused: by an operator; else no pool serves it.
    """

    queue: str
    waiting: int
    is_paused: bool


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at; ``alerts``: why this console cannot send to all channels."""

    promises: Sequence[Promise] = ()
    lost_hosts: Sequence[str] = ()
    dead: Sequence[DeadGroup] = ()
    unserved: Sequence[UnservedQueue] = ()
    gap: str = ""
    behind_seconds: float = 0.0
    held_back: Sequence[str] = ()
    rebuilding: str = ""
    alerts: str = ""


def attention(facts: Facts) -> list[Attention]:
    """All that should be looked at, the most urgent first."""
    noted = [one for kind in KINDS for one in kind(facts)]
    return sorted(noted, key=lambda one: _ORDER[one.severity])


def _late(facts: Facts) -> Iterator[Attention]:
    for pool in facts.promises:
        if pool.state == "late":
            oldest, promised = map(wording.seconds, (pool.oldest_waiting_seconds, pool.sla_seconds))
            text = f"{pool.pool}: the oldest job has waited {oldest}; {promised} are promised."
            yield _about_pool("late", "urgent", pool, text)


def _burning(facts: Facts) -> Iterator[Attention]:
    for pool in facts.promises:
        if pool.budget_left_share is not None and pool.budget_left_share <= 0:
            text = (
                f"{pool.pool}: the budget of late jobs is used up: "
                f"{wording.share(pool.kept_share)} started in time, {_percent(pool.quantile)} are "
                "promised."
            )
            yield _about_pool("spent", "urgent", pool, text)
        elif pool.used_up_in_seconds is not None and pool.burn_rate > 1:
            text = (
                f"{pool.pool}: at this pace the budget of late jobs is used up in "
                f"{wording.seconds(pool.used_up_in_seconds)} (burning {pool.burn_rate:.1f} times "
                "as fast as allowed)."
            )
            yield _about_pool("burning", "warning", pool, text)


def _crashing(facts: Facts) -> Iterator[Attention]:
    for pool in facts.promises:
        if pool.state == "crash-loop":
            text = (
                f"{pool.pool}: its workers end, or are not ready in time, whenever they start; "
                "the executor's log has the reason."
            )
            yield _about_pool("crash-loop", "urgent", pool, text)


def _source_faults(facts: Facts) -> Iterator[Attention]:
    for pool in facts.promises:
        if pool.source is not None and (fault := source_state.fault(pool.source)):
            yield _about_pool("source-fault", "warning", pool, f"{pool.pool}: {fault}.")


def _lost(facts: Facts) -> Iterator[Attention]:
    for host in facts.lost_hosts:
        text = f"Host {host} is silent: its share of the workers moved to other hosts."
        yield Attention(
            kind="host-lost", severity="warning", subject=host, text=text, link="/capacity"
        )


def _dead(facts: Facts) -> Iterator[Attention]:
    for group in facts.dead:
        jobs = "1 job" if group.jobs == 1 else f"{group.jobs:,} jobs"
        text = (
            f"{jobs} of {group.function} died within the last hour: "
            f"{wording.error(group.error_kind)}."
        )
        of_function = f"/jobs?q=state:dead+function:{group.function}"
        link = f"/failures/{group.fingerprint}" if group.fingerprint else of_function
        yield Attention(
            kind="dead", severity="warning", subject=group.function, text=text, link=link
        )


def _unserved(facts: Facts) -> Iterator[Attention]:
    for queue in facts.unserved:
        jobs = "1 job waits" if queue.waiting == 1 else f"{queue.waiting:,} jobs wait"
        jobs = jobs if queue.waiting else "no job waits yet"
        why = "is paused" if queue.is_paused else "is served by no pool"
        yield Attention(
            kind="paused" if queue.is_paused else "unserved",
            severity="note" if queue.is_paused else "warning",
            subject=queue.queue,
            text=f"Queue {queue.queue} {why}: {jobs}.",
            link=(
                f"/jobs?q=state:waiting+queue:{queue.queue}"
                if queue.waiting
                else f"/queues/{queue.queue}"
            ),
        )


def _gap(facts: Facts) -> Iterator[Attention]:
    if facts.gap:
        text = f"Older history is not shown: {facts.gap}."
        yield Attention(kind="gap", severity="note", subject="", text=text, link="/system")


def _behind(facts: Facts) -> Iterator[Attention]:
    if facts.held_back:
        text = (
            f"The console is {facts.behind_seconds:.0f} s behind the event log: "
            f"{'; '.join(facts.held_back)}."
        )
        yield Attention(kind="behind", severity="warning", subject="", text=text, link="/system")


def _rebuilding(facts: Facts) -> Iterator[Attention]:
    if facts.rebuilding:
        text = f"Rows are made anew beside those that are shown ({facts.rebuilding})."
        yield Attention(kind="rebuilding", severity="note", subject="", text=text, link="/system")


def _alerts(facts: Facts) -> Iterator[Attention]:
    if facts.alerts:
        text, link = f"{facts.alerts}.", "/alerts/channels"
        yield Attention(kind="alerts", severity="warning", subject="", text=text, link=link)


KINDS: tuple[Callable[[Facts], Iterator[Attention]], ...] = (
    _late,
    _burning,
    _crashing,
    _source_faults,
    _lost,
    _dead,
    _unserved,
    _gap,
    _behind,
    _rebuilding,
    _alerts,
)


def _about_pool(kind: str, severity: Severity, pool: Promise, text: str) -> Attention:
    return Attention(
        kind=kind, severity=severity, subject=pool.pool, text=text, link=f"/pools/{pool.pool}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:g} %"
