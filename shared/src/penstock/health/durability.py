"""The failures that acknowledged jobs survive, by how the broker stores them. Pure.

A file-backed stream hands each message to the operating system before it is acknowledged: that
survives the end of the broker, not of the machine. Onto the disk it is forced every
``sync_interval`` (two minutes unless configured), or at once with ``sync_interval: always``. A
replicated stream is acknowledged when a majority has it.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.health.facts import Facts, StreamFacts
from penstock.health.report import Durability, Survival

YES, NO, PARTLY, UNKNOWN = "yes", "no", "partly", "unknown"


def posture(facts: Facts) -> Durability | None:
    """The durability of the installation; None when its streams are not known."""
    if not facts.streams:
        return None
    return Durability(
        process=_process(facts.streams), power=_power(facts), node=_node(facts.streams)
    )


def in_one_line(durability: Durability) -> str:
    """For logs and the first lines of `penstock up`."""
    parts = (
        ("the end of the broker's process", durability.process),
        ("a loss of power", durability.power),
        ("the loss of a machine", durability.node),
    )
    answers = "; ".join(
        f"{what}: {survival.answer} ({survival.because})" for what, survival in parts
    )
    return f"acknowledged jobs survive {answers}"


def _process(streams: Sequence[StreamFacts]) -> Survival:
    if volatile := _in_memory(streams):
        return Survival(answer=NO, because=f"{volatile} are kept in memory only")
    return Survival(answer=YES, because="all streams are kept in files")


def _power(facts: Facts) -> Survival:
    if volatile := _in_memory(facts.streams):
        return Survival(answer=NO, because=f"{volatile} are kept in memory only")
    sync, copies = facts.broker.sync_seconds, _copies(facts.streams)
    if sync == 0:
        return Survival(answer=YES, because="each message is forced onto the disk")
    lost = "an unknown time" if sync is None else f"{sync:g} s"
    if copies > 1:
        return Survival(
            answer=PARTLY,
            because=f"{copies} copies survive the loss of one machine; if all lose power at once, "
            f"the last {lost} may be lost",
        )
    if sync is None:
        return Survival(
            answer=UNKNOWN,
            because="the broker's sync interval is not known (2 minutes unless configured); "
            "set nats.monitor_url to have it read",
        )
    return Survival(
        answer=NO,
        because=f"one copy, forced onto the disk every {lost}: jobs acknowledged since may be "
        "lost; use sync_interval: always, or 3 replicas",
    )


def _node(streams: Sequence[StreamFacts]) -> Survival:
    copies = _copies(streams)
    if copies < 3:
        return Survival(answer=NO, because="one copy of each message; set streams.replicas to 3")
    if lagging := [stream.name for stream in streams if stream.lagging]:
        return Survival(
            answer=PARTLY,
            because=f"{copies} copies, but some of {', '.join(lagging)} are offline or behind",
        )
    return Survival(
        answer=YES, because=f"{copies} copies: {(copies - 1) // 2} machines may be lost"
    )


def _copies(streams: Sequence[StreamFacts]) -> int:
    return min(stream.replicas for stream in streams)


def _in_memory(streams: Sequence[StreamFacts]) -> str:
    return ", ".join(stream.name for stream in streams if stream.storage != "file")
