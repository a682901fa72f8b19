"""Alerts, silences, and what was sent."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Request
from litestar.exceptions import NotFoundException, ValidationException
from litestar.params import FromPath, FromQuery, JSONBody

from penstock.console.alerts.book import MOST_SILENCES, Past
from penstock.console.api.active_alerts import ActiveAlert, active_alert
from penstock.console.api.alert_acts import act, actor, check_labels, note
from penstock.console.api.endpoint import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    Limit,
    Listing,
    Routes,
    read,
    whole,
)
from penstock.console.core.alerts.rules import MOST_MATCHERS, Matcher, Silence, Window
from penstock.console.core.alerts.states import all_labels
from penstock.console.core.times import instant
from penstock.console.parts import Console
from penstock.console.web.acting import acting
from penstock.events.alerting import (
    AlertAcknowledged,
    AlertNotified,
    AlertResolveRequested,
    SilenceEnded,
    SilenceSet,
)
from penstock.events.envelope import new_id

_LONGEST_SECONDS = 31 * 86_400


class AlertAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One alert: its state now, when it fired before, and what was sent."""

    alert: ActiveAlert | None
    history: list[Past]
    notifications: list[AlertNotified]


class SilenceInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A silence as it is entered.

    Attributes:
        seconds: for how long, or how long each time.
        begins: a time with its offset, or POSIX seconds; None for now.
        every_seconds: maintenance that returns, such as 604800 for weekly; None for once.
    """

    matchers: Annotated[tuple[Matcher, ...], msgspec.Meta(min_length=1, max_length=MOST_MATCHERS)]
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    seconds: Annotated[float, msgspec.Meta(ge=60, le=_LONGEST_SECONDS)]
    begins: (
        Annotated[float, msgspec.Meta(ge=0, le=1e11)]
        | Annotated[datetime, msgspec.Meta(tz=True)]
        | None
    ) = None
    every_seconds: Annotated[float, msgspec.Meta(ge=3600, le=_LONGEST_SECONDS)] | None = None


class SilenceShown(Silence, frozen=True, kw_only=True, tag="silence"):
    """A silence, also with its times as elsewhere."""

    begins_at: datetime
    ends_at: datetime


class WindowShown(Window, frozen=True, kw_only=True, tag="window"):
    """A maintenance window, also with the time of the first one as elsewhere."""

    begins_at: datetime


def silence_shown(one: Silence | Window) -> SilenceShown | WindowShown:
    """As it is answered."""
    fields = msgspec.structs.asdict(one) | {"begins_at": instant(round(one.begins * 1e6))}
    if isinstance(one, Window):
        return WindowShown(**fields)
    return SilenceShown(**fields, ends_at=instant(round(one.ends * 1e6)))


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a silence would hold back now: alerts that are active, and rules that it fits."""

    alerts: list[ActiveAlert]
    summary: str


def made(entered: SilenceInput, author: str, now: float) -> Silence | Window:
    """The silence of an input.

    Raises:
        ValidationException: it would never end, or names a label that no alert has.
    """
    check_labels((matcher.label for matcher in entered.matchers), "matchers")
    begins = now if entered.begins is None else entered.begins
    if isinstance(begins, datetime):
        begins = begins.timestamp()
    if entered.every_seconds is None:
        return Silence(
            id=new_id(),
            matchers=entered.matchers,
            author=author,
            reason=entered.reason,
            begins=begins,
            ends=begins + entered.seconds,
        )
    if entered.seconds >= entered.every_seconds:
        raise ValidationException("seconds must be less than every_seconds: it would never end")
    return Window(
        id=new_id(),
        matchers=entered.matchers,
        author=author,
        reason=entered.reason,
        begins=begins,
        lasts_seconds=min(entered.seconds, 7 * 86_400.0),
        every_seconds=entered.every_seconds,
    )


def preview(console: Console, entered: SilenceInput) -> Preview:
    """The active alerts that a silence would hold back."""
    check_labels((matcher.label for matcher in entered.matchers), "matchers")
    rules = console.alerts.book.rules
    fitting = [
        one
        for one in console.alerts.active()
        if (rule := rules.get(one.alert.rule)) is not None
        and all(matcher.matches(all_labels(one.alert, rule)) for matcher in entered.matchers)
    ]
    count = f"{len(fitting)} of {len(console.alerts.active())} active alerts"
    return Preview(
        alerts=[active_alert(one) for one in fitting],
        summary=f"It would hold back {count}, and others like them.",
    )


async def act_on(
    console: Console, key: str, request: Request[Any, Any, Any], kind: type[Any]
) -> ActiveAlert:
    """Stores that a person acknowledged or resolved an alert."""
    one = console.alerts.one(key)
    if one is None or not one.alert.is_active:
        raise NotFoundException(f"there is no active alert {key[:64]!r}")
    act = acting(request)
    act.target, act.after = f"alert:{key}", {"incident": one.alert.incident, "rule": one.rule_name}
    await console.alerts.book.store(kind(alert=key, incident=one.alert.incident, by=actor(request)))
    return active_alert(one)


async def add_silence(
    console: Console, entered: SilenceInput, request: Request[Any, Any, Any]
) -> Silence | Window:
    """Stores a silence.

    Raises:
        ValidationException: see :func:`made`; or there are too many.
    """
    if len(current_silences(console)) >= MOST_SILENCES:
        raise ValidationException(f"there are {MOST_SILENCES} silences already")
    author = actor(request)
    one = made(entered, author, console.bus.now())
    note(request, f"silence:{one.id}", None, one)
    definition = msgspec.to_builtins(one)
    await console.alerts.book.store(SilenceSet(name=one.id, by=author, definition=definition))
    return one


def current_silences(console: Console) -> list[Silence | Window]:
    """Silences that have not ended, the next to end first."""
    now = console.bus.now()
    kept = [
        one
        for one in console.alerts.book.silences.values()
        if isinstance(one, Window) or one.ends > now
    ]
    return sorted(kept, key=lambda one: one.begins, reverse=True)


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    book = console.alerts.book

    @read("/alerts")
    async def alerts(phase: FromQuery[str] = "", limit: Limit = MAX_LIMIT) -> Listing[ActiveAlert]:
        """Alerts that are pending or fire, the most urgent first."""
        phases = {"": ("pending", "firing", "keep"), "firing": ("firing", "keep")}
        wanted = phases.get(phase, (phase,))
        fitting = [one for one in console.alerts.active() if one.alert.phase in wanted]
        return whole(console, [active_alert(one) for one in fitting[:limit]])

    @read("/alerts/history")
    async def history(limit: Limit = DEFAULT_LIMIT) -> Listing[Past]:
        """Alerts that fired, newest first."""
        return whole(console, list(reversed(book.history.values()))[:limit])

    @read("/alerts/{key:str}")
    async def alert(key: FromPath[str]) -> AlertAnswer:
        """One alert: now, before, and what was sent."""
        return alert_answer(console, key)

    @act("POST", "/alerts/{key:str}/acknowledge", "alert.acknowledge", status_code=202)
    async def acknowledge(key: FromPath[str], request: Request[Any, Any, Any]) -> ActiveAlert:
        """Takes an alert on: no repeated messages, no escalation."""
        return await act_on(console, key, request, AlertAcknowledged)

    @act("POST", "/alerts/{key:str}/resolve", "alert.resolve", status_code=202)
    async def resolve(key: FromPath[str], request: Request[Any, Any, Any]) -> ActiveAlert:
        """Ends an alert; it fires again only after its condition ended."""
        return await act_on(console, key, request, AlertResolveRequested)

    @read("/silences")
    async def silences() -> Listing[SilenceShown | WindowShown]:
        """Silences and maintenance windows that have not ended."""
        return whole(console, [silence_shown(one) for one in current_silences(console)])

    @act("POST", "/silences/preview", "silence.preview", status_code=200)
    async def look(data: JSONBody[SilenceInput]) -> Preview:
        """What a silence would hold back now; nothing is stored."""
        return preview(console, data)

    @act("POST", "/silences", "silence.create")
    async def silence(
        data: JSONBody[SilenceInput], request: Request[Any, Any, Any]
    ) -> SilenceShown | WindowShown:
        """Holds back the messages of some alerts for a time."""
        return silence_shown(await add_silence(console, data, request))

    @act("DELETE", "/silences/{silence_id:str}", "silence.end", status_code=204)
    async def end(silence_id: FromPath[str], request: Request[Any, Any, Any]) -> None:
        """Ends a silence now."""
        if silence_id not in book.silences:
            raise NotFoundException(f"there is no silence {silence_id[:64]!r}")
        note(request, f"silence:{silence_id}", book.silences[silence_id], None)
        await book.store(SilenceEnded(name=silence_id, by=actor(request)))

    @read("/notifications")
    async def notifications(limit: Limit = DEFAULT_LIMIT) -> Listing[AlertNotified]:
        """Messages that were sent or given up, newest first."""
        return whole(console, list(reversed(book.notifications.values()))[:limit])

    return (
        alerts,
        history,
        alert,
        acknowledge,
        resolve,
        silences,
        look,
        silence,
        end,
        notifications,
    )


def alert_answer(console: Console, key: str) -> AlertAnswer:
    """All about one alert. Raises NotFoundException."""
    book = console.alerts.book
    past = [one for one in reversed(book.history.values()) if one.alert == key]
    one = console.alerts.one(key)
    if one is None and not past:
        raise NotFoundException(f"there is no alert {key[:64]!r}, or not any more")
    sent = [event for event in reversed(book.notifications.values()) if key in event.alerts]
    return AlertAnswer(
        alert=active_alert(one) if one else None, history=past[:50], notifications=sent[:50]
    )
