"""Alerts: what fires, what fired, channels, silences."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from litestar import MediaType, Request, Response
from litestar.exceptions import ValidationException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from penstock.console.api.alert_acts import actor
from penstock.console.api.alert_channels import (
    ChannelInput,
    all_shown,
    heartbeat_shown,
    save_channel,
)
from penstock.console.api.alerts import (
    Preview,
    SilenceInput,
    act_on,
    add_silence,
    alert_answer,
    current_silences,
    preview,
)
from penstock.console.core.alerts.channels import SCHEMES, BadChannel
from penstock.console.core.alerts.states import Alert
from penstock.console.pages.acting.buttons import ACTED, acts
from penstock.console.pages.alerts.frame import alert_page
from penstock.console.pages.forms import MOST_FORM_BYTES, go, read_all_fields
from penstock.console.pages.rendering import Pages, Topic, Values, page_at
from penstock.console.parts import Console
from penstock.console.web.acting import act
from penstock.console.web.scopes import Scope
from penstock.events.alerting import (
    AlertAcknowledged,
    AlertResolveRequested,
    SilenceEnded,
)

AnyRequest = Request[Any, Any, Any]
_AREA = "Alerts"
_LOOKS, _LOOK_SECONDS = 30, 0.05
_SHOWN = 100
REPETITIONS = {"": "once", "86400": "every day", "604800": "every week"}
"""Of maintenance, by seconds from one beginning to the next."""
_NO_SILENCE = {"label": "pool", "glob": "", "reason": "", "hours": "2", "begins": "", "every": ""}
_PAGE: dict[str, Any] = {
    "include_in_schema": False,
    "media_type": MediaType.HTML,
    "request_max_body_size": MOST_FORM_BYTES,
}


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages, their forms, and what they are sent while they are open."""
    alerts = console.alerts

    async def firing() -> Values:
        return {"active": alerts.active()}

    pages.add_topic(Topic("alerts", ("alerts",), firing, {"firing": "alerts/firing.html"}))

    def shown(request: AnyRequest, name: str, tab: str, title: str, **values: Any) -> Response[str]:
        values["topics"] = ("alerts",) if name == "firing" else ()
        template = "alerts.html" if name == "firing" else f"alerts/{name}.html"
        return alert_page(pages, request, template, tab, title, **values)

    @page_at("/alerts")
    async def list_firing(request: AnyRequest) -> Response[str]:
        return shown(request, "firing", "Firing", "Alerts", **await firing())

    @page_at("/alerts/history")
    async def history(request: AnyRequest) -> Response[str]:
        past = list(reversed(alerts.book.history.values()))[:_SHOWN]
        sent = list(reversed(alerts.book.notifications.values()))[:_SHOWN]
        return shown(request, "history", "History", "Alert history", past=past, sent=sent)

    @page_at("/alerts/{key:str}")
    async def alert(request: AnyRequest, key: FromPath[str]) -> Response[str]:
        answer = alert_answer(console, key)
        return shown(request, "alert", "Firing", "Alert", answer=answer, key=key)

    def channel_page(request: AnyRequest, problem: str = "") -> Response[str]:
        return shown(
            request,
            "channels",
            "Channels",
            "Alert channels",
            channels=all_shown(console),
            acts={
                one.id: acts(console, request, ["alert.channel.test"], one.id)
                for one in all_shown(console)
            },
            heartbeat=heartbeat_shown(console),
            schemes=SCHEMES,
            problem=problem,
        )

    @page_at("/alerts/channels")
    async def channels(request: AnyRequest) -> Response[str]:
        return channel_page(request)

    @act("POST", "/alerts/channels", Scope.ALERTS, "alert.channel.save", **_PAGE)
    async def save(request: AnyRequest) -> Response[str]:
        fields = await read_all_fields(request)
        names = ("id", "name", "kind", "url", "key", "fallback")
        try:
            entered = msgspec.convert({name: _one(fields, name) for name in names}, ChannelInput)
            await save_channel(console, entered, request)
        except (BadChannel, msgspec.ValidationError) as error:
            return channel_page(request, f"Not saved: {error}.")
        except ValidationException as error:
            return channel_page(request, f"Not saved: {error.detail}.")
        return go("/alerts/channels")

    def silence_page(
        request: AnyRequest, entered: dict[str, str], problem: str = "", held: Preview | None = None
    ) -> Response[str]:
        return shown(
            request,
            "silences",
            "Silences",
            "Silences",
            silences=current_silences(console),
            entered=_NO_SILENCE | entered,
            repetitions=REPETITIONS,
            preview=held,
            problem=problem,
        )

    @page_at("/alerts/silences")
    async def silences(
        request: AnyRequest, label: FromQuery[str] = "", glob: FromQuery[str] = ""
    ) -> Response[str]:
        return silence_page(request, {"label": label[:100] or "pool", "glob": glob[:200]})

    @act("POST", "/alerts/silences", Scope.ALERTS, "silence.create", **_PAGE)
    async def silence(request: AnyRequest) -> Response[str]:
        fields = await read_all_fields(request)
        names = ("label", "glob", "reason", "hours", "begins", "every")
        entered = {name: _one(fields, name) for name in names}
        try:
            one = _silence(entered)
            if fields.get("do") == ["preview"]:
                return silence_page(request, entered, held=preview(console, one))
            await add_silence(console, one, request)
        except (ValueError, msgspec.ValidationError) as error:
            return silence_page(request, entered, f"Not set: {error}.")
        except ValidationException as error:
            return silence_page(request, entered, f"Not set: {error.detail}.")
        return go("/alerts/silences")

    @act("POST", "/alerts/silences/{silence_id:str}", Scope.ALERTS, "silence.end", **_PAGE)
    async def end(request: AnyRequest, silence_id: FromPath[str]) -> Response[str]:
        if silence_id in alerts.book.silences:
            await alerts.book.store(SilenceEnded(name=silence_id, by=actor(request)))
        return go("/alerts/silences")

    @act("POST", "/alerts/{key:str}/acknowledge", Scope.ALERTS, "alert.acknowledge", **_PAGE)
    async def acknowledge(request: AnyRequest, key: FromPath[str]) -> Response[str]:
        await act_on(console, key, request, AlertAcknowledged)
        await _applied(console, key, lambda alert: bool(alert.acknowledged_by))
        return go(f"/alerts/{key}?{ACTED}=alert.acknowledge")

    @act("POST", "/alerts/{key:str}/resolve", Scope.ALERTS, "alert.resolve", **_PAGE)
    async def resolve(request: AnyRequest, key: FromPath[str]) -> Response[str]:
        await act_on(console, key, request, AlertResolveRequested)
        await _applied(console, key, lambda alert: not alert.is_active)
        return go(f"/alerts?{ACTED}=alert.resolve")

    return (
        list_firing,
        history,
        alert,
        channels,
        save,
        silences,
        silence,
        end,
        acknowledge,
        resolve,
    )


def _silence(entered: Mapping[str, str]) -> SilenceInput:
    """The silence of a form. Raises ValueError, ValidationError."""
    begins = entered["begins"] and datetime.fromisoformat(entered["begins"]).replace(tzinfo=UTC)
    definition = {
        "matchers": [{"label": entered["label"], "glob": entered["glob"]}],
        "reason": entered["reason"],
        "seconds": float(entered["hours"]) * 3600,
        "begins": begins.timestamp() if begins else None,
        "every_seconds": float(entered["every"]) if entered["every"] else None,
    }
    return msgspec.convert(definition, SilenceInput)


def _one(fields: Mapping[str, list[str]], name: str) -> str:
    return fields.get(name, [""])[0].strip()


async def _applied(console: Console, key: str, fits: Callable[[Alert], bool]) -> None:
    """Waits a moment until the leader has applied an act, so that the next page shows it."""
    for _ in range(_LOOKS):
        one = console.alerts.one(key)
        if one is None or fits(one.alert):
            return
        await asyncio.sleep(_LOOK_SECONDS)
