"""What a caller may do: each endpoint and page names one scope, and nothing is open without."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Scope(StrEnum):
    """Scopes of tokens and roles."""

    PUBLIC = "public"
    """Needs no credentials: style sheets and scripts."""
    READ = "read"
    PAYLOAD = "payload"
    JOBS = "jobs"
    QUEUES = "queues"
    SCHEDULES = "schedules"
    ALERTS = "alerts"
    ADMIN = "admin"


_OPTION = "scope"


def needs(scope: Scope) -> dict[str, Any]:
    """The option of a route handler that names its scope: ``@get(…, opt=needs(Scope.READ))``."""
    return {_OPTION: scope}


def scope_of(options: dict[str, Any]) -> Scope | None:
    """The scope that a route handler's options name; None where they name none."""
    scope = options.get(_OPTION)
    return scope if isinstance(scope, Scope) else None
