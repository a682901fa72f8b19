"""What endpoints that act share: who acts, and what the caller is given."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request

from penstock.console.parts import Console
from penstock.console.web.acting import acting
from penstock.events.subjects import check_name
from penstock.jobs.client import Client

ACCEPTED = 202
_OWN_WRITE_SECONDS = 0.5
_LONGEST_SOURCE = 80

ApiRequest = Request[Any, Any, Any]
Text = Annotated[str, msgspec.Meta(max_length=1000)]
ShortText = Annotated[str, msgspec.Meta(max_length=200)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=366 * 86_400.0)]


class Reason(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why, for people; stored with the event."""

    reason: Text = ""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """An act was accepted.

    Attributes:
        id: of what was acted on, or was made.
        events: where its events are; the act is one of them.
    """

    id: str
    events: str


def source_of(request: ApiRequest) -> str:
    """The origin that events of this request name: ``console/ada``."""
    principal = request.scope["state"].get("principal")
    return f"console/{principal.name if principal else 'local'}"[:_LONGEST_SOURCE]


def client_of(console: Console, request: ApiRequest) -> Client:
    """A client that acts in the caller's name."""
    return Client.over(console.bus, console.settings, source=source_of(request))


def target(request: ApiRequest, noun: str, name: str, **after: str) -> str:
    """Notes what is acted on for the audit log; returns the name. Raises BadName."""
    check_name(noun, name)
    act = acting(request)
    act.target, act.after = f"{noun}:{name}", {key: value for key, value in after.items() if value}
    return name


async def receipt(console: Console, noun: str, key: str) -> Receipt:
    """Waits a moment until the act's own event is folded, so that the next page shows it."""
    subjects = console.subjects
    last = await console.bus.last(subjects.events_stream, subjects.events(noun, key))
    if last is not None:
        await console.projection.reached(last.sequence, _OWN_WRITE_SECONDS)
    return Receipt(id=key, events=f"/api/v1/events?noun={noun}&key={key}")
