"""The declaration of a metric: its name, unit and labels, and who publishes it."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

_UNITS = {"s": "seconds", "By": "bytes", "1": "ratio"}
_PER = {"s": "second"}
_PUBLISHERS = {
    "every service": ("service",),
    "metrics": ("pool", "queue", "snapshots", "jobs", "job", "function"),
    "decider": ("decider", "decision", "decisions", "commands"),
    "executor": ("host", "workers", "worker"),
    "orchestrator": (
        "health",
        "broker",
        "stream",
        "dead_letters",
        "disk",
        "orchestrator",
        "workflow",
        "graph",
    ),
    "console": ("console",),
}


class Metric(msgspec.Struct, frozen=True):
    """The declaration of a metric.

    Attributes:
        name: with OpenTelemetry's dots.
        kind: of instrument.
        unit: UCUM: ``s``, ``By``, ``1`` (a share), ``{job}``, ``{job}/s``.
        labels: their names, in the order in which values are given.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    unit: str
    about: str
    labels: tuple[str, ...] = ()

    @property
    def published_by(self) -> str:
        """The service that publishes it."""
        noun = self.name.split(".")[1]
        [service] = [service for service, nouns in _PUBLISHERS.items() if noun in nouns]
        return service

    @property
    def prometheus(self) -> str:
        """Its name in the exposition; a counter's samples have ``_total`` behind it."""
        counted, _, per = re.sub(r"\{.*?\}", "", self.unit).partition("/")
        words = [self.name.replace(".", "_"), _UNITS.get(counted, ""), per and f"per_{_PER[per]}"]
        return "_".join(word for word in words if word)


def gauge(name: str, unit: str, about: str, *labels: str) -> Metric:
    """A value that goes up and down."""
    return Metric(f"penstock.{name}", "gauge", unit, about, labels)


def counter(name: str, unit: str, about: str, *labels: str) -> Metric:
    """A number that only grows."""
    return Metric(f"penstock.{name}", "counter", unit, about, labels)


def histogram(name: str, about: str, *labels: str) -> Metric:
    """Durations in seconds, counted by length."""
    return Metric(f"penstock.{name}", "histogram", "s", about, labels)
