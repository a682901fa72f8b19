"""How an endpoint of alerts acts: its scope, its name for the audit log, and who acts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from litestar import Request
from litestar.exceptions import ValidationException
from litestar.handlers import HTTPRouteHandler

from penstock.console.core.alerts.rules import LABELS
from penstock.console.web import acting
from penstock.console.web.access import PRINCIPAL
from penstock.console.web.scopes import Scope


def act(
    method: str, path: str, action: str, **options: Any
) -> Callable[[Callable[..., Any]], HTTPRouteHandler]:
    """Declares an endpoint that acts on alerts.

    Args:
        method: ``POST``, ``PUT`` or ``DELETE``.
        path: below ``/api/v1``.
        action: as it stands in the audit log.
        options: of Litestar's handler.
    """
    return acting.act(method, path, Scope.ALERTS, action, **options)


def actor(request: Request[Any, Any, Any]) -> str:
    """The name of the caller."""
    principal = request.scope["state"].get(PRINCIPAL)
    return principal.name[:100] if principal else "unknown"


def check_labels(names: Iterable[str], where: str) -> None:
    """Refuses labels that no alert has.

    Args:
        names: of the labels.
        where: field that they stand in.

    Raises:
        ValidationException: one is not of :data:`LABELS`.
    """
    for name in names:
        if name not in LABELS:
            detail = f"{where}: no alert has a label {name!r}; there are {', '.join(LABELS)}"
            raise ValidationException(detail)


def note(
    request: Request[Any, Any, Any],
    target: str,
    before: msgspec.Struct | None,
    after: msgspec.Struct | None,
) -> None:
    """Adds to the entry of the act what it changes: the fields that differ.

    Args:
        target: what is acted on, such as ``rule:ID``.
        before: without secrets; None where it is made.
        after: without secrets; None where it is removed.
    """
    former, new = _fields(before), _fields(after)
    act = acting.acting(request)
    act.target = target
    act.before = {name: text for name, text in former.items() if new.get(name) != text}
    act.after = {name: text for name, text in new.items() if former.get(name) != text}


def _fields(value: msgspec.Struct | None) -> dict[str, str]:
    if value is None:
        return {}
    fields = msgspec.structs.asdict(value)
    return {name: msgspec.json.encode(field).decode() for name, field in fields.items()}
