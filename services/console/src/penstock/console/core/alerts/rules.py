"""Rules, channels, silences and maintenance windows as data. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal

import msgspec

from penstock.console.core.alerts.expression import parse

Identifier = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Glob = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=31 * 86_400)]
Severity = Literal["page", "warn", "note"]
MOST_CHANNELS, MOST_LEVELS, MOST_MATCHERS = 10, 5, 10
LABELS = (
    "component", "fingerprint", "function", "host", "kind", "pool", "rule", "severity", "worker"
)  # fmt: skip
"""Labels of alerts; all have ``rule``, ``kind`` and ``severity``."""


class Condition(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """What a rule watches; each kind is a subclass."""


class Burn(Condition, frozen=True, kw_only=True, tag="burn"):
    """The budget of late jobs burns at a pace, as the platform itself counts it.

    Attributes:
        pool: glob of pools.
        pace: the least: ``slow``, ``fast`` or ``spent``.
    """

    pool: Glob = "*"
    pace: Literal["slow", "fast", "spent"] = "slow"


class PredictedBreach(Condition, frozen=True, kw_only=True, tag="predicted-breach"):
    """A job that is dispatched now is expected to start late."""

    pool: Glob = "*"


class HeldByCapacity(Condition, frozen=True, kw_only=True, tag="held-by-capacity"):
    """A pool needs more workers than the hosts have room for."""

    pool: Glob = "*"


class BudgetCap(Condition, frozen=True, kw_only=True, tag="budget-cap"):
    """A pool has used its worker-hours of the day and gets no more workers."""

    pool: Glob = "*"


class DeadLetters(Condition, frozen=True, kw_only=True, tag="dead-letters"):
    """Jobs die of one kind of failure.

    Attributes:
        function: glob of job functions.
        when: ``first-seen``, ``surge`` (more than ``times`` its usual hour) or ``returned`` (after
            ``quiet_hours`` without).
        at_least: jobs within an hour.
    """

    function: Glob = "*"
    when: Literal["first-seen", "surge", "returned"] = "first-seen"
    at_least: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    times: Annotated[float, msgspec.Meta(gt=1, le=1000)] = 5.0
    quiet_hours: Annotated[float, msgspec.Meta(gt=0, le=14 * 24)] = 24.0


class QueueAge(Condition, frozen=True, kw_only=True, tag="queue-age"):
    """The oldest waiting job of a pool is older than so many times what is promised."""

    pool: Glob = "*"
    promises: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 2.0


class HostLost(Condition, frozen=True, kw_only=True, tag="host-lost"):
    """A host is silent for longer than its lease."""

    host: Glob = "*"


class CrashLoop(Condition, frozen=True, kw_only=True, tag="crash-loop"):
    """The workers of a pool end, or are not ready in time, whenever they start."""

    pool: Glob = "*"


class Stuck(Condition, frozen=True, kw_only=True, tag="stuck"):
    """A worker lives and its job makes no progress."""

    pool: Glob = "*"


class Health(Condition, frozen=True, kw_only=True, tag="health"):
    """A component is not well."""

    component: Glob = "*"
    at_least: Literal["warning", "degraded", "unhealthy"] = "degraded"


class NoLeader(Condition, frozen=True, kw_only=True, tag="no-leader"):
    """No decider decides: nothing is scaled."""

    seconds: Seconds = 30.0


class Absence(Condition, frozen=True, kw_only=True, tag="absence"):
    """A pool or host was silent for a time.

    Attributes:
        source: ``pool:NAME`` or ``host:NAME``; a glob for several.
        seconds: for so long.
    """

    source: Annotated[str, msgspec.Meta(pattern=r"^(pool|host):[A-Za-z0-9_.*?-]{1,200}$")] = (
        "pool:*"
    )
    seconds: Seconds = 60.0


class Expression(Condition, frozen=True, kw_only=True, tag="expression"):
    """A comparison of a pool's series, such as ``waiting > 100 and avg(waiting, 5m) > 50``.

    Raises:
        BadExpression: says where the text is wrong, and what was expected.
    """

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    pool: Glob = "*"

    def __post_init__(self) -> None:
        parse(self.text)


AnyCondition = (
    Burn
    | PredictedBreach
    | HeldByCapacity
    | BudgetCap
    | DeadLetters
    | QueueAge
    | HostLost
    | CrashLoop
    | Stuck
    | Health
    | NoLeader
    | Absence
    | Expression
)


class Escalation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Further channels, for an alert that is not acknowledged."""

    after_seconds: Seconds
    channels: Annotated[tuple[Identifier, ...], msgspec.Meta(max_length=MOST_CHANNELS)]


class Rule(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What is watched, for how long, and who is notified.

    Attributes:
        for_seconds: the condition holds for so long before the alert fires.
        keep_seconds: the alert stays for so long after the condition ended; if it comes back
            meanwhile, it is the same alert.
        repeat_seconds: the message is sent again while the alert fires and is not acknowledged; 0
            for never.
        group_by: labels; alerts that agree in them come in one message.
        held_back_by: ids of rules; while one of their alerts is there, no message is sent.
    """

    id: Identifier
    name: Name
    condition: AnyCondition
    for_seconds: Seconds = 60.0
    keep_seconds: Seconds = 300.0
    severity: Severity = "warn"
    channels: Annotated[tuple[Identifier, ...], msgspec.Meta(max_length=MOST_CHANNELS)] = ()
    escalations: Annotated[tuple[Escalation, ...], msgspec.Meta(max_length=MOST_LEVELS)] = ()
    group_by: Annotated[tuple[Name, ...], msgspec.Meta(max_length=5)] = ()
    repeat_seconds: Seconds = 4 * 3600.0
    held_back_by: Annotated[tuple[Identifier, ...], msgspec.Meta(max_length=20)] = ()
    is_enabled: bool = True

    @property
    def levels(self) -> tuple[Escalation, ...]:
        """Who is notified, and how long after the alert fired."""
        return (Escalation(after_seconds=0.0, channels=self.channels), *self.escalations)


class Matcher(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A glob over one label; ``rule``, ``kind`` and ``severity`` are labels of every alert."""

    label: Name
    glob: Glob

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the label is there and fits."""
        return self.label in labels and fnmatchcase(labels[self.label], self.glob)


class Silence(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="silence",
):
    """Sends no messages of alerts that all matchers fit, until its end.

    Attributes:
        begins: POSIX seconds.
        ends: POSIX seconds.
    """

    id: Identifier
    matchers: Annotated[tuple[Matcher, ...], msgspec.Meta(min_length=1, max_length=MOST_MATCHERS)]
    author: Name
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    begins: float
    ends: float

    def holds(self, labels: Mapping[str, str], at: float) -> bool:
        """Whether it covers an alert at that time."""
        return self.begins <= at < self.ends and all(one.matches(labels) for one in self.matchers)


class Window(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="window",
):
    """Maintenance that returns: a silence each ``every_seconds``, such as weekly.

    Attributes:
        begins: POSIX seconds of the first.
        lasts_seconds: each of them.
        every_seconds: from one beginning to the next.
    """

    id: Identifier
    matchers: Annotated[tuple[Matcher, ...], msgspec.Meta(min_length=1, max_length=MOST_MATCHERS)]
    author: Name
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    begins: float
    lasts_seconds: Annotated[float, msgspec.Meta(gt=0, le=7 * 86_400)]
    every_seconds: Annotated[float, msgspec.Meta(ge=3600, le=31 * 86_400)] = 7 * 86_400.0

    def holds(self, labels: Mapping[str, str], at: float) -> bool:
        """Whether it covers an alert at that time."""
        if at < self.begins or (at - self.begins) % self.every_seconds >= self.lasts_seconds:
            return False
        return all(one.matches(labels) for one in self.matchers)

    def next_boundary(self, after: float) -> float:
        """When it next begins or ends."""
        if after < self.begins:
            return self.begins
        start = self.begins + (after - self.begins) // self.every_seconds * self.every_seconds
        end = start + self.lasts_seconds
        return end if after < end else start + self.every_seconds


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides about alerts, by id.

    Attributes:
        channels: names of those that exist.
        group_seconds: least time between two messages of one group to one channel.
    """

    rules: dict[str, Rule] = {}
    channels: frozenset[str] = frozenset()
    silences: tuple[Silence, ...] = ()
    windows: tuple[Window, ...] = ()
    group_seconds: float = 30.0
