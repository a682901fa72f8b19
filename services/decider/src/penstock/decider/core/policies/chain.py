"""A pool's policies, one after the other: before its decision, and after it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from penstock.config.settings import Profile
from penstock.decider.core import options
from penstock.decider.core.notices import Notice
from penstock.decider.core.policies.policy import (
    Aftermath,
    Policies,
    Policy,
    Proposal,
    Result,
    Verdict,
)
from penstock.decider.core.state import Memories
from penstock.decider.core.strategy import MOST_WORKERS
from penstock.decider.core.trail import Trail
from penstock.events.envelope import encode
from penstock.events.subjects import check_name

MOST_BYTES = 8192
"""A policy may remember so much; it is written with each decision."""


class BadAnswer(ValueError):
    """A policy answered with something that cannot be used."""


def ask(proposal: Proposal, memories: Memories, policies: Policies, trail: Trail) -> None:
    """Asks each of the pool's policies; what it changes goes on the trail."""
    for policy in _chosen(proposal.profile, policies, trail):
        if policy.before is None:
            continue
        try:
            own = _own(proposal, policy, memories, trail.workers)
            verdict = _verdict(policy.before(own))
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
    kept, notices = dict[str, Any](), list[Notice]()
    for policy in _chosen(proposal.profile, policies, Trail()):
        memory = memories.get(policy.name)
        if policy.after is not None:
            try:
                own = _own(proposal, policy, memories, proposal.workers)
                aftermath = _aftermath(policy.after(own, result))
            except Exception as error:
                _report(policy, error, trail)
            else:
                memory = memory if aftermath is None else aftermath.memory
                notices += () if aftermath is None else aftermath.notices
        if memory:
            kept[policy.name] = memory
    return kept, notices


def _chosen(profile: Profile, policies: Policies, trail: Trail) -> Iterator[Policy]:
    """In the order of the settings, those that cap last."""
    caps = []
    for name in profile.policies_in_force:
        policy = policies.get(name)
        if policy is None:
            trail.say("policy", name, trail.workers, f"{name} is not installed and was skipped")
        elif policy.caps:
            caps.append(policy)
        else:
            yield policy
    yield from caps


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


def _verdict(verdict: Verdict | None) -> Verdict | None:
    if verdict is None:
        return None
    if type(verdict.workers) is not int or not 0 <= verdict.workers <= MOST_WORKERS:
        raise BadAnswer(f"found {verdict.workers!r}, expected 0 to {MOST_WORKERS} workers")
    msgspec.json.encode((verdict.text, verdict.values))
    return verdict


def _aftermath(aftermath: Aftermath | None) -> Aftermath | None:
    """As it comes back from the log, so that a replay and a new leader see the same."""
    if aftermath is None:
        return None
    raw = msgspec.json.encode(aftermath.memory)
    if len(raw) > MOST_BYTES:
        raise BadAnswer(f"found {len(raw)} bytes to remember, expected at most {MOST_BYTES}")
    for notice in aftermath.notices:
        _check_notice(notice)
    return msgspec.structs.replace(aftermath, memory=msgspec.json.decode(raw))


def _check_notice(notice: Notice) -> None:
    """It can be published: the shell only adds who says it and when."""
    event = notice.event(at=datetime.fromtimestamp(0, UTC), **notice.fields)
    encode(event)
    check_name("key of an event", event.key)
