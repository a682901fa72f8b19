"""The rules that every event log keeps, and what is reported where one is broken."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from penstock.events.envelope import Event, UnknownEvent

Entry = tuple[int, Event | UnknownEvent]
"""An event and its sequence in the log."""
History = list[Entry]
"""The events of one job, batch or graph that the log holds, in its order."""


class Rule(StrEnum):
    """What the documentation promises; the value is the rule's name in JSON."""

    ENDS = "ends"
    ONCE = "once"
    LEGAL = "legal"
    READABLE = "readable"
    CARRIED = "carried"
    TOKEN = "token"  # noqa: S105 - a rule's name
    OUTDATED = "outdated"
    BATCH = "batch"
    GRAPH = "graph"
    WORKFLOW = "workflow"
    CALLBACK = "callback"
    TICK = "tick"
    FENCED = "fenced"
    DECISION = "decision"

    @property
    def text(self) -> str:
        """The rule as a sentence."""
        return _TEXTS[self]


_TEXTS = {
    Rule.ENDS: "every acknowledged dispatch ends",
    Rule.ONCE: "a job ends once, and nothing follows its end until it is requeued",
    Rule.LEGAL: "events follow the table of transitions",
    Rule.READABLE: "each message is an event of its subject",
    Rule.CARRIED: "a job that has not ended is never lost to the bounds of the log",
    Rule.TOKEN: "fencing tokens and attempts grow",
    Rule.OUTDATED: "only the running attempt records what it does",
    Rule.BATCH: "a batch's counts equal a recount of its jobs' events",
    Rule.GRAPH: "a step is dispatched when the steps it needs have completed",
    Rule.WORKFLOW: "a workflow schedules steps first, and takes note of what happened, once",
    Rule.CALLBACK: "a callback is dispatched after the end that it belongs to",
    Rule.TICK: "each tick of a schedule is dispatched once, as its expression says",
    Rule.FENCED: "an epoch has one leader, and the commands of a host grow",
    Rule.DECISION: "a recorded decision is equal, bit for bit, when it is computed again",
}


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One breach of a rule.

    Attributes:
        rule: which one.
        subject: what broke it, such as ``job 0197…`` or ``batch nightly``.
        text: what was found.
        sequence: of the event in the log; 0 where it is not one event.
    """

    rule: Rule
    subject: str
    text: str
    sequence: int = 0

    def __str__(self) -> str:
        where = f" at sequence {self.sequence}" if self.sequence else ""
        return f"{self.subject}{where}: {self.text} (rule {self.rule}: {self.rule.text})"
