"""Rules of alerts: read, saved, switched, tested over the past."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, NotFoundException, ValidationException
from litestar.params import FromPath, JSONBody

from penstock.bus.protocol import BusError, WrongSequence
from penstock.console.alerts.book import MOST_RULES
from penstock.console.api.alert_acts import act, actor, check_labels, note
from penstock.console.api.endpoint import Listing, Routes, read, whole
from penstock.console.computing.commands import TooManyComputations
from penstock.console.core.alerts.backtest import Backtest
from penstock.console.core.alerts.rules import Rule
from penstock.console.core.alerts.states import Entry, Notification
from penstock.console.parts import Console
from penstock.console.web.conflict import Conflict
from penstock.console.web.entity_tags import (
    PRECONDITION_FAILED,
    check_unchanged,
    tag,
    wanted_tags,
)
from penstock.events.alerting import AlertRuleRemoved, AlertRuleSaved
from penstock.events.envelope import new_id

TEST_TEXT = "This is a test of the rule; nothing is wrong."


class RuleSaved(msgspec.Struct, frozen=True, kw_only=True):
    """A rule as it is stored now, and what it would have done in the past.

    Attributes:
        backtest: None where the recorded events cannot be read, or others are being tested.
    """

    rule: Rule
    version: int
    backtest: Backtest | None = None


async def save_rule(
    console: Console,
    rule: Rule,
    request: Request[Any, Any, Any],
    expected: int | None = None,
) -> RuleSaved:
    """Stores a rule.

    Args:
        console: its book and its bus.
        rule: as it shall be.
        request: of the caller.
        expected: version that the caller has seen; None: whatever it is.

    Raises:
        ValidationException: a channel, rule or label that it names is not there, or there are
            too many.
        HTTPException: status 412: it was changed meanwhile.
    """
    book = console.alerts.book
    channels = {name for level in rule.levels for name in level.channels}
    if missing := sorted(channels - book.channels.keys()):
        raise ValidationException(f"there is no channel {missing[0]!r}; make it first")
    if missing := sorted(set(rule.held_back_by) - book.rules.keys()):
        raise ValidationException(f"held_back_by: there is no rule {missing[0]!r}")
    check_labels(rule.group_by, "group_by")
    if rule.id not in book.rules and len(book.rules) >= MOST_RULES:
        raise ValidationException(f"there are {MOST_RULES} rules already; remove one first")
    try:
        answer = await console.alerts.backtest(rule)
    except (BusError, TooManyComputations):
        answer = None
    definition = msgspec.to_builtins(rule)
    note(request, f"rule:{rule.id}", book.rules.get(rule.id), rule)
    saved = AlertRuleSaved(name=rule.id, by=actor(request), definition=definition)
    version = await _store(console, saved, expected)
    return RuleSaved(rule=rule, version=version, backtest=answer)


def _expected(request: Request[Any, Any, Any], version: int) -> int | None:
    """The version that a change is for; None where its caller names none. Raises HTTPException."""
    check_unchanged(request.headers, tag(version))
    wanted = wanted_tags(request.headers)
    return version if wanted and "*" not in wanted else None


async def _store(
    console: Console, event: AlertRuleSaved | AlertRuleRemoved, expected: int | None
) -> int:
    try:
        return await console.alerts.book.store(event, expected)
    except WrongSequence:
        detail = "it was changed since: another change came first"
        raise HTTPException(detail, status_code=PRECONDITION_FAILED) from None


def existing(console: Console, name: str) -> Rule:
    """The rule of an id. Raises NotFoundException."""
    rule = console.alerts.book.rules.get(name)
    if rule is None:
        raise NotFoundException(f"there is no rule {name[:64]!r}")
    return rule


async def send_test(console: Console, channel: str, rule_name: str) -> None:
    """Sends one message that says it is a test. Raises SendFailed."""
    entry = Entry(
        kind="firing",
        alert="test",
        incident="test",
        rule=rule_name,
        severity="note",
        labels={},
        text=TEST_TEXT,
        fired_at=console.bus.now(),
    )
    notification = Notification(
        id=f"test-{new_id()}", channel=channel, at=console.bus.now(), entries=(entry,)
    )
    await console.alerts.senders.send(console.alerts.book.channels[channel], notification)


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    book = console.alerts.book

    def version(name: str) -> int:
        return book.versions.get(("rule", name), 0)

    @read("/alerts/rules")
    async def rules() -> Listing[Rule]:
        """All rules."""
        return whole(console, sorted(book.rules.values(), key=lambda rule: rule.name))

    @read("/alerts/rules/{rule_id:str}")
    async def rule(rule_id: FromPath[str]) -> Response[Rule]:
        """One rule; its version is the `ETag`, for `If-Match`."""
        return Response(existing(console, rule_id), headers={"etag": tag(version(rule_id))})

    @act("POST", "/alerts/rules", "alert.rule.create")
    async def create(data: JSONBody[Rule], request: Request[Any, Any, Any]) -> RuleSaved:
        """Makes a rule; the answer says what it would have done in the last 14 days."""
        if data.id in book.rules:
            raise Conflict(f"there is a rule {data.id!r} already; use PUT to change it")
        return await save_rule(console, data, request)

    @act("PUT", "/alerts/rules/{rule_id:str}", "alert.rule.change")
    async def change(
        rule_id: FromPath[str], data: JSONBody[Rule], request: Request[Any, Any, Any]
    ) -> RuleSaved:
        """Changes a rule; the answer says what it would have done in the last 14 days."""
        existing(console, rule_id)
        if data.id != rule_id:
            raise ValidationException(f"found the id {data.id!r}, expected {rule_id!r}")
        expected = _expected(request, version(rule_id))
        return await save_rule(console, data, request, expected)

    @act("DELETE", "/alerts/rules/{rule_id:str}", "alert.rule.remove", status_code=204)
    async def remove(rule_id: FromPath[str], request: Request[Any, Any, Any]) -> None:
        """Removes a rule; its alerts end."""
        before = existing(console, rule_id)
        expected = _expected(request, version(rule_id))
        note(request, f"rule:{rule_id}", before, None)
        await _store(console, AlertRuleRemoved(name=rule_id, by=actor(request)), expected)

    @act("POST", "/alerts/rules/{rule_id:str}/toggle", "alert.rule.toggle", status_code=200)
    async def toggle(rule_id: FromPath[str], request: Request[Any, Any, Any]) -> Rule:
        """Switches a rule off, or on."""
        before = existing(console, rule_id)
        after = msgspec.structs.replace(before, is_enabled=not before.is_enabled)
        definition = msgspec.to_builtins(after)
        note(request, f"rule:{rule_id}", before, after)
        saved = AlertRuleSaved(name=rule_id, by=actor(request), definition=definition)
        await book.store(saved)
        return after

    @act("POST", "/alerts/rules/{rule_id:str}/test", "alert.rule.test", status_code=204)
    async def test(rule_id: FromPath[str]) -> None:
        """Sends a test message to the rule's first channels."""
        one = existing(console, rule_id)
        if not (channels := [name for name in one.channels if name in book.channels]):
            raise ValidationException("the rule has no channels: nothing can be sent")
        for channel in channels:
            await send_test(console, channel, one.name)

    @act("POST", "/alerts/rules/{rule_id:str}/backtest", "alert.rule.backtest", status_code=200)
    async def backtest(rule_id: FromPath[str], data: JSONBody[Rule | None] = None) -> Backtest:
        """What the rule, or another form of it in the body, would have done in 14 days."""
        return await console.alerts.backtest(data or existing(console, rule_id))

    return rules, rule, create, change, remove, toggle, test, backtest
