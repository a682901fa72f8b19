"""Rules of alerts: their list, one rule with its form and backtest, and a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import MediaType, Response, post
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from penstock.bus.protocol import BusError
from penstock.console.alerts.parts import BACKTEST_DAYS
from penstock.console.api.alert_channels import all_shown
from penstock.console.api.alert_rules import existing
from penstock.console.computing.commands import TooManyComputations
from penstock.console.core.alerts.backtest import Backtest
from penstock.console.core.alerts.rules import Rule
from penstock.console.pages.acting import through_api
from penstock.console.pages.acting.buttons import ACTED, AnyRequest, acts, refusal, viewer
from penstock.console.pages.acting.page_act import BadField
from penstock.console.pages.alerts import rule_form
from penstock.console.pages.alerts.frame import alert_page
from penstock.console.pages.alerts.rule_form import Entered
from penstock.console.pages.forms import MOST_FORM_BYTES, go, read_all_fields
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.parts import Console
from penstock.console.web.acting import records_itself
from penstock.console.web.entity_tags import tag
from penstock.console.web.scopes import Scope, needs
from penstock.events.envelope import new_id

_TAB = "Rules"
_NEW = "/alerts/new-rule"
_BAD_REQUEST, _CHANGED_SINCE = 400, 412
_FORM: dict[str, Any] = {
    # The request to the API that it sends is the one that stands in the audit log.
    "opt": needs(Scope.READ) | records_itself("page.act"),
    "include_in_schema": False,
    "media_type": MediaType.HTML,
    "request_max_body_size": MOST_FORM_BYTES,
}


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """How a form went.

    Attributes:
        backtest: of what it holds; None where it was not asked for.
        problem: why it was refused, as a sentence; empty where it was not.
        saved: id of the rule; empty where nothing was saved.
    """

    status: int = 200
    backtest: Backtest | None = None
    problem: str = ""
    saved: str = ""


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages and their forms."""
    alerts = console.alerts

    @page_at("/alerts/rules")
    async def rules(request: AnyRequest) -> Response[str]:
        named = _by_name(alerts.book.rules)
        return alert_page(
            pages,
            request,
            "alerts/rules.html",
            _TAB,
            "Alert rules",
            rules=named,
            kinds=rule_form.KINDS,
            rule_problems={rule.id: alerts.problem(rule) for rule in named},
            refusal=refusal(console, viewer(request), Scope.ALERTS),
        )

    def rule_page(
        request: AnyRequest, rule: Rule, entered: Entered, result: Sent, notice: str = ""
    ) -> Response[str]:
        names = [*["alert.rule.test"] * bool(rule.channels), "alert.rule.toggle"]
        page = alert_page(
            pages,
            request,
            "alerts/rule.html",
            _TAB,
            rule.name,
            rule=rule,
            acts=acts(console, request, [*names, "alert.rule.remove"], rule.id),
            condition=msgspec.to_builtins(rule.condition),
            refused=result.problem,
            changed_since=result.status == _CHANGED_SINCE,
            not_evaluated=alerts.problem(rule),
            notice=notice,
            **_form_values(console, request, entered, rule.id, result.backtest),
        )
        page.status_code = result.status
        return page

    @page_at("/alerts/rules/{rule_id:str}")
    async def rule(request: AnyRequest, rule_id: FromPath[str]) -> Response[str]:
        one = existing(console, rule_id)
        notice, answer = "", None
        try:
            answer = await alerts.backtest(one)
        except BusError as error:
            notice = f"The recorded events cannot be read: {error}."
        except TooManyComputations as error:
            notice = f"The last {BACKTEST_DAYS} days are not shown: {error}."
        return rule_page(request, one, rule_form.filled(one), Sent(backtest=answer), notice)

    @post("/alerts/rules/{rule_id:str}", **_FORM)
    async def change(request: AnyRequest, rule_id: FromPath[str]) -> Response[str]:
        before = existing(console, rule_id)
        kind = str(before.condition.__struct_config__.tag)
        entered = rule_form.completed(await read_all_fields(request) | {"id": [rule_id]}, kind)
        result = await _sent(console, request, entered, rule_id)
        if result.saved:
            return go(f"/alerts/rules/{rule_id}?{ACTED}=alert.rule.change")
        notice = "" if result.problem else "Not saved yet: this is how it would have been."
        return rule_page(request, existing(console, rule_id), entered, result, notice)

    def new_page(request: AnyRequest, entered: Entered, result: Sent) -> Response[str]:
        page = alert_page(
            pages,
            request,
            "alerts/new_rule.html",
            _TAB,
            f"New rule: {rule_form.KINDS[entered['kind'][0]].title}",
            refused=result.problem,
            changed_since=False,
            notice="Not saved yet: this is how it would have been." if result.backtest else "",
            about=rule_form.KINDS[entered["kind"][0]].about,
            **_form_values(console, request, entered, "", result.backtest),
        )
        page.status_code = result.status
        return page

    @page_at(_NEW)
    async def new_rule(request: AnyRequest, kind: FromQuery[str] = "") -> Response[str]:
        if kind and kind not in rule_form.KINDS:
            raise NotFoundException(f"there is no kind {kind[:40]!r} of rules")
        if kind:
            return new_page(request, rule_form.started(kind), Sent())
        kinds = rule_form.KINDS.items()
        template = "alerts/kinds.html"
        return alert_page(pages, request, template, _TAB, "New alert rule", kinds=kinds)

    @post(_NEW, **_FORM)
    async def make(request: AnyRequest) -> Response[str]:
        entered = await read_all_fields(request)
        kind = entered.get("kind", [""])[0]
        if kind not in rule_form.KINDS:
            raise NotFoundException(f"there is no kind {kind[:40]!r} of rules")
        entered = rule_form.completed(entered, kind)
        result = await _sent(console, request, entered)
        if result.saved:
            return go(f"/alerts/rules/{result.saved}?{ACTED}=alert.rule.create")
        return new_page(request, entered, result)

    return rules, rule, change, new_rule, make


def _form_values(
    console: Console, request: AnyRequest, entered: Entered, rule_id: str, answer: Backtest | None
) -> dict[str, Any]:
    """What the form and its backtest show."""
    kind, book = entered["kind"][0], console.alerts.book
    return {
        "entered": {name: values[0] if values else "" for name, values in entered.items()},
        "chosen": entered,
        "kind": kind,
        "kind_title": rule_form.KINDS[kind].title,
        "fields": rule_form.condition_fields(kind),
        "levels": rule_form.levels(entered),
        "channels": all_shown(console),
        "others": [one for one in _by_name(book.rules) if one.id != rule_id],
        "version": book.versions.get(("rule", rule_id), 0),
        "once": new_id(),
        "refusal": refusal(console, viewer(request), Scope.ALERTS),
        "backtest": answer,
        "bars": _bars(answer, console.bus.now()),
    }


async def _sent(console: Console, request: AnyRequest, entered: Entered, rule_id: str = "") -> Sent:
    """Has the API test or save what a form holds; ``rule_id`` empty for a new rule."""
    try:
        wanted = rule_form.definition(entered)
    except BadField as error:
        return Sent(status=_BAD_REQUEST, problem=f"{error}.")
    if entered.get("do") == ["test"]:
        path = f"/alerts/rules/{rule_id or 'new'}/backtest"
        answer = await through_api.send(request, "POST", path, wanted)
        if not answer.is_accepted:
            return Sent(status=answer.status, problem=answer.problem)
        return Sent(backtest=msgspec.json.decode(answer.body, type=Backtest))
    if rule_id:
        shown = entered.get("version", [""])[0]
        path = f"/alerts/rules/{rule_id}"
        version = shown and tag(shown)
        answer = await through_api.send(request, "PUT", path, wanted, version=version)
        if answer.status == _CHANGED_SINCE and wanted == _present(console, rule_id):
            return Sent(saved=rule_id)  # sent twice, or the other change is the same
    else:
        once = entered.get("once", [""])[0]
        answer = await through_api.send(request, "POST", "/alerts/rules", wanted, once)
    if answer.is_accepted:
        return Sent(saved=wanted["id"])
    return Sent(status=answer.status, problem=answer.problem)


def _present(console: Console, rule_id: str) -> dict[str, Any]:
    """The rule as its form would send it."""
    return rule_form.definition(rule_form.filled(existing(console, rule_id)))


def _by_name(rules: dict[str, Rule]) -> list[Rule]:
    return sorted(rules.values(), key=lambda rule: rule.name)


def _bars(answer: Backtest | None, now: float) -> list[tuple[float, float]]:
    """Place and width of each incident on a line of 1,000."""
    span = BACKTEST_DAYS * 86_400.0
    bars = []
    for one in answer.incidents if answer else ():
        width = max(3.0, 1000 * one.seconds / span)
        begin = 1000 * (one.began_at.timestamp() - now + span) / span
        bars.append((round(min(max(0.0, begin), 1000 - width), 1), round(width, 1)))
    return bars
