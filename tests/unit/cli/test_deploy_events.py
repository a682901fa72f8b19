"""Each event of jobs, batches, graphs and inboxes has roles that store it, and no others."""

from __future__ import annotations

import pytest

from penstock.cli.deploy.accounts import Key, accounts
from penstock.cli.deploy.event_groups import GROUPS, subject
from penstock.cli.deploy.roles import ROLES
from penstock.events.batch import BATCH_EVENTS
from penstock.events.console import CONSOLE_EVENTS
from penstock.events.envelope import Event
from penstock.events.graph import GRAPH_EVENTS
from penstock.events.job import JOB_EVENTS
from penstock.events.muting import MUTE_EVENTS
from penstock.events.workflow import INBOX_EVENTS

REGISTERED = [
    event for codec in (JOB_EVENTS, BATCH_EVENTS, GRAPH_EVENTS, INBOX_EVENTS) for event in codec
]
STORED_BY = {
    "orchestrator": {event.__name__ for event in REGISTERED} - {"SignalReceived"},
    "worker": {
        *("JobDispatched", "JobCancelled", "JobTagged", "SignalReceived"),
        *("BatchCreated", "BatchClosed", "BatchStopping"),
        *("GraphStarted", "GraphSignalled", "GraphStopping", "GraphPaused", "GraphResumed"),
        *("WorkflowCancelling", "WorkflowPaused", "WorkflowResumed"),
        *("JobStarted", "JobProgressed", "JobCommitted", "JobCompleted", "JobFailed"),
        *("JobRetrying", "JobReleased", "JobRecovered", "JobDead"),
        *("WorkflowAdvanced", "StepRecorded", "StepsScheduled"),
        *("WorkflowBlocked", "WorkflowContinued"),
    },
    "dispatcher": {
        *("JobDispatched", "JobCancelled", "JobTagged", "SignalReceived"),
        *("BatchCreated", "BatchClosed", "BatchStopping"),
        *("GraphStarted", "GraphSignalled", "GraphStopping", "GraphPaused", "GraphResumed"),
        *("WorkflowCancelling", "WorkflowPaused", "WorkflowResumed"),
    },
    "operator": {
        *("JobDispatched", "JobCancelled", "JobTagged", "SignalReceived"),
        *("BatchCreated", "BatchClosed", "BatchStopping"),
        *("GraphStarted", "GraphSignalled", "GraphStopping", "GraphPaused", "GraphResumed"),
        *("WorkflowCancelling", "WorkflowPaused", "WorkflowResumed"),
        *("JobMoved", "JobRevived", "WorkflowFixed", "BatchReopened", "GraphReopened"),
    },
    "console": {
        *("JobDispatched", "JobCancelled", "JobTagged", "SignalReceived"),
        *("BatchCreated", "BatchClosed", "BatchStopping"),
        *("GraphStarted", "GraphSignalled", "GraphStopping", "GraphPaused", "GraphResumed"),
        *("WorkflowCancelling", "WorkflowPaused", "WorkflowResumed"),
        *("JobMoved", "JobRevived", "WorkflowFixed", "BatchReopened", "GraphReopened"),
    },
    "executor": {"JobReleased", "JobRecovered", "JobDead"},
}


@pytest.mark.parametrize("event", REGISTERED, ids=lambda event: event.__name__)
def test_each_event_belongs_to_one_group(event: type[Event]) -> None:
    """A new event fails here until someone has decided which roles store it."""
    assert sum(event in group for group in GROUPS) == 1


def test_no_group_names_what_is_no_event() -> None:
    assert {event for group in GROUPS for event in group} == set(REGISTERED)


@pytest.mark.parametrize("role", ROLES)
def test_a_key_may_store_the_events_of_its_role_alone(role: str) -> None:
    """By the broker's configuration, in which what is denied counts more than what is allowed."""
    stored = {event.__name__ for event in REGISTERED if _may_publish(role, subject(event))}
    assert stored == STORED_BY.get(role, set())


CONSOLE_STORED_BY = {
    "console": {event.__name__ for event in CONSOLE_EVENTS},
    "console-reader": {"AuditRecorded"},
    "operator": {
        *("TokenCreated", "TokenRevoked", "TokenUsed", "AuditRecorded", "PasswordSet"),
        *("AccountAdded", "AccountChanged", "AccountRemoved", "SetupLinkMade"),
        *("AccountDisabled", "AccountEnabled"),
    },
}


@pytest.mark.parametrize("role", ROLES)
def test_accounts_tokens_and_sessions_are_written_by_the_console_and_operators(role: str) -> None:
    stored = {
        event.__name__
        for event in CONSOLE_EVENTS
        if _may_publish(role, f"console.{event.noun}.*.{event.__name__}")
    }
    assert stored == CONSOLE_STORED_BY.get(role, set())


@pytest.mark.parametrize("role", ROLES)
def test_functions_are_muted_by_the_console_and_operators(role: str) -> None:
    stored = {one for one in MUTE_EVENTS if _may_publish(role, f"console.mute.*.{one.__name__}")}
    assert stored == (set(MUTE_EVENTS) if role in {"console", "operator"} else set())


@pytest.mark.parametrize("event", CONSOLE_EVENTS, ids=lambda event: event.__name__)
def test_no_field_takes_the_place_of_the_events_name(event: type[Event]) -> None:
    """Which stands in its subject, and so in the permissions."""
    assert isinstance(event.name, property)


@pytest.mark.parametrize("role", ROLES)
def test_no_role_removes_from_the_consoles_stream(role: str) -> None:
    assert "CONSOLE" not in {*ROLES[role].purges, *ROLES[role].deletes}


@pytest.mark.parametrize("role", ROLES)
def test_who_reads_the_consoles_stream(role: str) -> None:
    """It holds the hashes of passwords."""
    may_read = "CONSOLE" in ROLES[role].reads
    assert may_read == (role in {"console", "console-reader", "operator"})


def _may_publish(role: str, pattern: str) -> bool:
    key = Key(name=role, role=role, public="UKEY", prefix="penstock")
    [user] = accounts([key])["penstock/" + role]["users"]
    publish = user["permissions"]["publish"]
    target = f"penstock.{pattern}".replace("*", "x")
    is_allowed = any(_matches(allowed, target) for allowed in publish["allow"])
    return is_allowed and not any(_matches(denied, target) for denied in publish["deny"])


def _matches(pattern: str, target: str) -> bool:
    wanted, tokens = pattern.split("."), target.split(".")
    if wanted[-1] == ">":
        wanted, tokens = wanted[:-1], tokens[: len(wanted) - 1]
    return len(wanted) == len(tokens) and all(
        one in ("*", other) for one, other in zip(wanted, tokens, strict=True)
    )
