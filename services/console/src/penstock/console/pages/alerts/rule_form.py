"""The form of a rule: its fields by kind, what they hold, and the definition they make. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from msgspec import inspect

from penstock.console.core.alerts.rules import MOST_LEVELS, AnyCondition, Condition, Rule
from penstock.console.pages.acting.page_act import BadField
from penstock.views import wording

Entered = Mapping[str, Sequence[str]]
"""The fields of a form, each with its values."""
_LONGEST_ID = 64
_CONDITION = "condition-"
_FIRST_AFTER_SECONDS = 600.0
"""Offered for an escalation that is not there yet."""


class Kind(NamedTuple):
    """A kind of rule in words."""

    title: str
    about: str


KINDS: Mapping[str, Kind] = {
    "burn": Kind(
        "Promise burn", "More jobs start late than the promise allows, at a pace that uses it up."
    ),
    "predicted-breach": Kind(
        "Predicted breach", "A job that is dispatched now is expected to start late."
    ),
    "queue-age": Kind(
        "Age of the queue", "The oldest job has waited several times what is promised."
    ),
    "held-by-capacity": Kind(
        "Held by capacity", "A pool needs more workers than the hosts have room for."
    ),
    "budget-cap": Kind("Budget cap", "A pool has used its worker-hours of the day."),
    "dead-letters": Kind(
        "Dead letters", "Jobs die of a new failure, of more than usual, or of one that is back."
    ),
    "stuck": Kind("Stuck job", "A worker lives and its job makes no progress."),
    "crash-loop": Kind("Crash loop", "Workers of a pool fail at their start."),
    "host-lost": Kind("Host lost", "A host is silent for longer than its lease."),
    "absence": Kind("Absence", "A pool or a host is not measured for a time."),
    "no-leader": Kind("No decider", "No decider decides: nothing is scaled."),
    "health": Kind("Health", "A component of the installation is not well."),
    "expression": Kind(
        "Expression", "A comparison of what is measured of a pool, such as avg(waiting, 5m) > 100."
    ),
}
"""By the tag of its condition, as a new rule offers them."""

_NAMES = "A name, or several: * stands for any part of it."
_LABELS: Mapping[str, tuple[str, str]] = {
    "pool": ("Pool", _NAMES),
    "function": ("Function", f"{_NAMES} A muted function is seen by rules that name it alone."),
    "host": ("Host", _NAMES),
    "component": ("Component", _NAMES),
    "pace": ("Pace at least", "slow: used up in days; fast: in hours; spent: used up."),
    "when": (
        "When",
        "first-seen: never seen before; surge: more than its usual hour; returned: back after "
        "a quiet time.",
    ),
    "dead-letters.at_least": ("Jobs at least", "Within an hour."),
    "times": ("Times its usual hour", "Of a surge."),
    "quiet_hours": ("Quiet for (hours)", "Before it returned."),
    "promises": ("Times the promise", "The oldest job has waited so many times what is promised."),
    "health.at_least": ("State at least", ""),
    "no-leader.seconds": ("Silent for", "Since the last decision of any decider."),
    "absence.source": ("What", "pool:NAME or host:NAME; * stands for any part of the name."),
    "absence.seconds": ("Silent for", ""),
    "text": (
        "Expression",
        "Series of the pool, numbers, and, or, avg(…, 5m): waiting > 100 and avg(waiting, 5m) > 50",
    ),
}
"""Label and hint of a condition's field, by its name, or by its kind and name."""


class FormField(NamedTuple):
    """A field of a condition.

    Attributes:
        name: in the form.
        key: in the condition.
        kind: ``length`` for a length of time.
        start: what a new rule begins with.
    """

    name: str
    key: str
    label: str
    about: str
    kind: Literal["text", "number", "length", "choice"]
    choices: tuple[str, ...]
    start: str


class Level(NamedTuple):
    """An escalation as the form shows it."""

    number: int
    after: str
    channels: Sequence[str]


_CONDITIONS: Mapping[str, type[Condition]] = {
    str(one.__struct_config__.tag): one for one in get_args(AnyCondition)
}


def condition_fields(kind: str) -> list[FormField]:
    """The fields of a kind, made of its type. Raises KeyError: there is no such kind."""
    described = inspect.type_info(_CONDITIONS[kind])
    assert isinstance(described, inspect.StructType)
    return [_field(kind, one) for one in described.fields]


def _field(kind: str, field: inspect.Field) -> FormField:
    label, about = _LABELS.get(f"{kind}.{field.name}") or _LABELS[field.name]
    start: Any = "" if field.required else field.default
    choices: tuple[str, ...] = ()
    shape: Literal["text", "number", "length", "choice"] = "text"
    if isinstance(field.type, inspect.LiteralType):
        shape, choices = "choice", tuple(map(str, field.type.values))
    elif field.name.endswith("seconds"):
        shape, start = "length", length(start)
    elif isinstance(field.type, inspect.IntType | inspect.FloatType):
        shape, start = "number", f"{start:g}"
    return FormField(_CONDITION + field.name, field.name, label, about, shape, choices, str(start))


def length(seconds: float) -> str:
    """A length of time as a field shows it, which :func:`definition` reads back exactly."""
    text = wording.seconds(seconds)
    try:
        is_exact = wording.read_seconds(text) == seconds
    except ValueError:
        is_exact = False
    return text if is_exact else f"{seconds:.15g} s"


def started(kind: str) -> dict[str, list[str]]:
    """What the form of a new rule of a kind begins with."""
    values = {field.name: [field.start] for field in condition_fields(kind)}
    return values | {
        "name": [""],
        "id": [""],
        "kind": [kind],
        "for_seconds": ["1 min"],
        "keep_seconds": ["5 min"],
        "repeat_seconds": ["4 h"],
        "severity": ["warn"],
        "group_by": [""],
        "is_enabled": ["1"],
    }


def completed(entered: Mapping[str, list[str]], kind: str) -> dict[str, list[str]]:
    """A form of a kind with all its fields, also those that its sender left out."""
    texts = started(kind).keys() - {"is_enabled"}
    return {name: [""] for name in texts} | dict(entered) | {"kind": [kind]}


def filled(rule: Rule) -> dict[str, list[str]]:
    """What the form of a rule begins with."""
    kind = str(rule.condition.__struct_config__.tag)
    values: dict[str, list[str]] = {
        "id": [rule.id],
        "name": [rule.name],
        "kind": [kind],
        "for_seconds": [length(rule.for_seconds)],
        "keep_seconds": [length(rule.keep_seconds)],
        "repeat_seconds": [length(rule.repeat_seconds)],
        "severity": [rule.severity],
        "group_by": [", ".join(rule.group_by)],
        "channels": list(rule.channels),
        "held_back_by": list(rule.held_back_by),
        "is_enabled": ["1"] * rule.is_enabled,
    }
    for field in condition_fields(kind):
        value = getattr(rule.condition, field.key)
        shown = length(value) if field.kind == "length" else value
        values[field.name] = [f"{shown:.15g}" if isinstance(shown, float) else str(shown)]
    for number, level in enumerate(rule.escalations):
        values[f"after-{number}"] = [length(level.after_seconds)]
        values[f"then-{number}"] = list(level.channels)
    return values


def levels(entered: Entered) -> list[Level]:
    """The escalations of a form, and one more to fill in."""
    made = [
        Level(number, _first(entered, f"after-{number}"), entered.get(f"then-{number}", ()))
        for number in range(MOST_LEVELS)
        if entered.get(f"then-{number}")
    ]
    free = set(range(MOST_LEVELS)) - {one.number for one in made}
    blank = [Level(number, length(_FIRST_AFTER_SECONDS), ()) for number in sorted(free)[:1]]
    return sorted([*made, *blank])


def definition(entered: Entered) -> dict[str, Any]:
    """The rule of a form for the API, which checks it.

    Raises:
        BadField: a number or a length of time cannot be read, or the kind is unknown.
    """
    kind = _first(entered, "kind")
    if kind not in KINDS:
        raise BadField(f"Kind: found {kind[:40]!r}, expected one of {', '.join(KINDS)}")
    condition: dict[str, Any] = {"kind": kind}
    for field in condition_fields(kind):
        condition[field.key] = _read(field.kind, field.label, _first(entered, field.name))
    escalations = [
        {
            "after_seconds": _read("length", "Not acknowledged after", level.after),
            "channels": list(level.channels),
        }
        for level in levels(entered)
        if level.channels
    ]
    name = _first(entered, "name")
    return {
        "id": _first(entered, "id") or id_of(name),
        "name": name,
        "condition": condition,
        "for_seconds": _read("length", "For", _first(entered, "for_seconds")),
        "keep_seconds": _read("length", "Keep", _first(entered, "keep_seconds")),
        "repeat_seconds": _read("length", "Repeat", _first(entered, "repeat_seconds")),
        "severity": _first(entered, "severity"),
        "channels": list(entered.get("channels", ())),
        "escalations": escalations,
        "group_by": [one.strip() for one in _first(entered, "group_by").split(",") if one.strip()],
        "held_back_by": list(entered.get("held_back_by", ())),
        "is_enabled": bool(entered.get("is_enabled")),
    }


def id_of(name: str) -> str:
    """An id made of a name; empty where it has no letter and no digit of ASCII."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_LONGEST_ID]


def _read(kind: str, label: str, text: str) -> Any:
    try:
        if kind == "length":
            return wording.read_seconds(text)
        if kind == "number":
            number = float(text)
            if not math.isfinite(number):
                raise ValueError("found no number")
            return int(number) if number.is_integer() else number
    except ValueError:
        expected = "a length of time such as 90 s, 5 min, 4 h" if kind == "length" else "a number"
        raise BadField(f"{label}: found {text[:40]!r}, expected {expected}") from None
    return text


def _first(entered: Entered, name: str) -> str:
    values = entered.get(name) or ("",)
    return values[0].strip()
