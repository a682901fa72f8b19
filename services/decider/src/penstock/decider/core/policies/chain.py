"""A pool's policies, one after the other: before its decision, and after it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

import msgspec

from penstock.config.profiles import Profile
from penstock.decider.core import options
from penstock.decider.core.history import History
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
"""Limit of what a policy may remember; it is stored with each decision."""
_encode = msgspec.json.Encoder().encode


class BadAnswer(ValueError):
    """A policy returned something that cannot be used."""


def apply(proposal: Proposal, memories: Memories, policies: Policies, history: History) -> None:
    """Applies each of the pool's policies; each change is added to the history."""
    for name, policy, table in _chosen(proposal.profile, policies).before:
        if policy is None:
            history.add("policy", name, history.workers, f"{name} is not installed and was skipped")
        elif policy.before is not None:
            try:
                own = _own(proposal, policy, table, memories, history.workers)
                verdict = policy.before(own)
                if verdict is not None:
                    _check_verdict(verdict)
            except Exception as error:  # a plug-in's fault: reported in the decision's reasons
                _report(policy, error, history)
                continue
            if verdict is not None:
                values = verdict.values
                history.change(policy.step, policy.name, verdict.workers, verdict.text, **values)


def review(
    proposal: Proposal, memories: Memories, policies: Policies, result: Result, history: History
) -> tuple[Memories, list[Notice]]:
    """Gives each of the pool's policies the result of its proposal.

    Returns:
        The memories, without those of policies that the pool has no more, and the notices.
    """
    kept: dict[str, Any] = {}
    notices: list[Notice] = []
    chosen = _chosen(proposal.profile, policies)
    # without memories, a policy that is not asked has nothing to keep
    for _, policy, table in chosen.all if memories else chosen.after:
        if policy is None:
            continue
        memory = memories.get(policy.name)
        if policy.after is not None:
            try:
                own = _own(proposal, policy, table, memories, proposal.workers)
                aftermath = policy.after(own, result)
                if aftermath is not None:
                    memory = _portable(aftermath)
                    notices += aftermath.notices
            except Exception as error:
                _report(policy, error, history)
        if memory:
            kept[policy.name] = memory
    return kept, notices


class _Link(NamedTuple):
    """One of a pool's policies, None where it is not installed, and the pool's settings for it."""

    name: str
    policy: Policy | None
    table: Mapping[str, Any] | None


class _Chosen(NamedTuple):
    """A pool's policies in the order of the settings, those that cap last.

    Attributes:
        all: of them.
        before: that are asked, or reported as not installed, before a decision.
        after: that are asked after it.
    """

    all: tuple[_Link, ...]
    before: tuple[_Link, ...]
    after: tuple[_Link, ...]


_MOST_CHOSEN = 50_000
_chosen_by_profile: dict[tuple[int, int], tuple[Profile, Policies, _Chosen]] = {}
"""By the ids of profile and policies, which stay as they are; both are referenced, so that no id is
reused."""


def _chosen(profile: Profile, policies: Policies) -> _Chosen:
    key = id(profile), id(policies)
    last = _chosen_by_profile.get(key)
    if last is not None:
        return last[2]
    if len(_chosen_by_profile) >= _MOST_CHOSEN:
        _chosen_by_profile.clear()
    links = [
        _Link(name, policy, profile.policy_options.get(policy.name) if policy else None)
        for name in profile.policies_in_force
        for policy in (policies.get(name),)
    ]
    links.sort(key=lambda link: link.policy is not None and link.policy.caps)
    chosen = _Chosen(
        tuple(links),
        tuple(link for link in links if link.policy is None or link.policy.before),
        tuple(link for link in links if link.policy is not None and link.policy.after),
    )
    _chosen_by_profile[key] = profile, policies, chosen
    return chosen


def _own(
    proposal: Proposal,
    policy: Policy,
    table: Mapping[str, Any] | None,
    memories: Memories,
    workers: int,
) -> Proposal:
    """The proposal with the options and memory of this policy."""
    memory = memories.get(policy.name, {})
    if policy.options is None and not (table or memory) and workers == proposal.workers:
        return proposal
    return msgspec.structs.replace(
        proposal,
        workers=workers,
        options=options.read(policy, table) if table else _defaults(policy.options),
        memory=memory,
    )


@cache
def _defaults(kind: type[msgspec.Struct] | None) -> Any:
    return None if kind is None else kind()


def _report(policy: Policy, error: Exception, history: History) -> None:
    text = f"{policy.name} raised {error!r} and was skipped"
    history.add(policy.step, policy.name, history.workers, text)


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
    """It can be published: the shell only adds its source and time."""
    event = notice.event(at=datetime.fromtimestamp(0, UTC), **notice.fields)
    encode(event)
    check_name("key of an event", event.key)
