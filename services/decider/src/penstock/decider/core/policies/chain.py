"""A pool's policies, one after the other: before its decision, and after it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from penstock.config.profiles import Profile
from penstock.decider.core import options
from penstock.decider.core.history import Trail
from penstock.decider.core.notices import Notice
from penstock.decider.core.policies.policy import (
    Aftermath,
    Policies,
    Policy,
    Proposal,
    Result,
    Verdict,
)
from penstock.decider.core.portable import portable
from penstock.decider.core.state import Memories
from penstock.decider.core.strategy import MOST_WORKERS
from penstock.events.envelope import encode
from penstock.events.subjects import check_name

MOST_BYTES = 8192
"""A policy may remember so much; it is written with each decision."""
_encode = msgspec.json.Encoder().encode


class BadAnswer(ValueError):
    """A policy answered with something that cannot be used."""


def ask(proposal: Proposal, memories: Memories, policies: Policies, trail: Trail) -> None:
    """Asks each of the pool's policies; what it changes goes on the trail."""
    for name, policy in _chosen(proposal.profile, policies):
        if policy is None:
            trail.say("policy", name, trail.workers, f"{name} is not installed and was skipped")
        elif policy.before is not None:
            try:
                own = _own(proposal, policy, memories, trail.workers)
                verdict = policy.before(own)
                if verdict is not None:
                    _check_verdict(verdict)
            except Exception as error:
                _report(policy, error, trail)
                continue
            if verdict is not None:
                values = verdict.values
                trail.change(policy.step, policy.name, verdict.workers, verdict.text, **values)


def tell(
    proposal: Proposal, memories: Memories, policies: Policies, result: Result, trail: Trail
) -> tuple[Memories, list[Notice]]:
    """Tells each of the pool's policies what became of it.

    Returns:
        What they remember, without those that the pool has no more, and what they want to be told.
    """
    kept: dict[str, Any] = {}
    notices: list[Notice] = []
    for _, policy in _chosen(proposal.profile, policies):
        if policy is None:
            continue
        memory = memories.get(policy.name)
        if policy.after is not None:
            try:
                own = _own(proposal, policy, memories, proposal.workers)
                aftermath = policy.after(own, result)
                if aftermath is not None:
                    memory = _portable(aftermath)
                    notices += aftermath.notices
            except Exception as error:
                _report(policy, error, trail)
        if memory:
            kept[policy.name] = memory
    return kept, notices


def _chosen(profile: Profile, policies: Policies) -> list[tuple[str, Policy | None]]:
    """In the order of the settings, those that cap last; None for one that is not installed."""
    found: list[tuple[str, Policy | None]] = []
    caps: list[tuple[str, Policy | None]] = []
    for name in profile.policies_in_force:
        policy = policies.get(name)
        (caps if policy is not None and policy.caps else found).append((name, policy))
    return found + caps if caps else found


def _own(proposal: Proposal, policy: Policy, memories: Memories, workers: int) -> Proposal:
    """With what only this policy sees."""
    table = proposal.profile.policy_options.get(policy.name)
    return msgspec.structs.replace(
        proposal,
        workers=workers,
        options=options.read(policy, table) if table else _defaults(policy.options),
        memory=memories.get(policy.name, {}),
    )


@cache
def _defaults(kind: type[msgspec.Struct] | None) -> Any:
    return None if kind is None else kind()


def _report(policy: Policy, error: Exception, trail: Trail) -> None:
    text = f"{policy.name} raised {error!r} and was skipped"
    trail.say(policy.step, policy.name, trail.workers, text)


def _check_verdict(verdict: Verdict) -> None:
    if type(verdict.workers) is not int or not 0 <= verdict.workers <= MOST_WORKERS:
        raise BadAnswer(f"found {verdict.workers!r}, expected 0 to {MOST_WORKERS} workers")
    _encode((verdict.text, verdict.values))


def _portable(aftermath: Aftermath) -> Any:
    """Its memory as it comes back from the log, so that a replay and a new leader see the same."""
    memory = portable(aftermath.memory, MOST_BYTES)
    for notice in aftermath.notices:
        _check_notice(notice)
    return memory


def _check_notice(notice: Notice) -> None:
    """It can be published: the shell only adds who says it and when."""
    event = notice.event(at=datetime.fromtimestamp(0, UTC), **notice.fields)
    encode(event)
    check_name("key of an event", event.key)
