"""A key writes nowhere by the reply subject of a request, whatever its role may ask.

NATS does not check which subject a client names for the reply. The answer of the broker can be a
stored message, headers and all, or empty, which is what a request to delete a stream looks like.
The requests and the targets come from the roles themselves, so a new role or verb is tried too.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from nats.aio.client import Client
from tests.integration.guarded import GuardedBroker, join
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus import streams
from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Outgoing
from penstock.cli.deploy.accounts import services, verbs
from penstock.cli.deploy.roles import ROLES
from penstock.events.subjects import Subjects

SUBJECTS = Subjects()
ASKING = [name for name, role in ROLES.items() if any(verbs(role, SUBJECTS))]
"""Others may send the broker no request at all."""
EVENT = "penstock.events.job.j.JobDispatched"
HELD = "$JS.ACK.JOBS.q_q.1.1.1.1.0"


@pytest.fixture
async def owner(guarded: GuardedBroker, settings: MakeSettings) -> AsyncIterator[NatsBus]:
    """The orchestrator, with a message in each stream."""
    settings.prefix = "penstock"
    bus = await connect(guarded.settings(settings, "orchestrator"))
    await bus.ensure_queue("q")
    for subject in (EVENT, "penstock.jobs.q", "penstock.dead.q.j", "penstock.checkpoints.j"):
        await bus.append(Outgoing(subject, b"{}"))
    yield bus
    await bus.close()


@pytest.mark.parametrize("role", ASKING)
async def test_no_answer_is_stored_and_no_stream_changes(
    guarded: GuardedBroker, owner: NatsBus, settings: MakeSettings, role: str
) -> None:
    errors: list[str] = []
    client = await join(guarded, role, errors)
    targets = list(foreign_subjects(settings, role))
    assert len(targets) >= len(streams.streams(settings(), SUBJECTS))
    before = await _states(owner)
    asked = 0
    for verb in verbs(ROLES[role], SUBJECTS):
        for body in _bodies(verb):
            for target in targets:
                await client.publish(_request(verb), body, reply=target)
                asked += 1
        await _answered(client, verb)
    assert asked
    assert await _states(owner) == before
    assert errors == []  # nothing of it was refused: the requests were all made
    await client.close()


@pytest.mark.parametrize("role", ROLES)
async def test_no_answer_acknowledges_a_job_or_passes_for_an_answer(
    guarded: GuardedBroker, role: str
) -> None:
    """Subjects that the broker keeps for itself are refused as a reply."""
    errors: list[str] = []
    targets = ["_R_.abcdef", *([] if ROLES[role].answers else [HELD])]
    client = await join(guarded, role, errors)
    for target in targets:
        await client.publish(_request("STREAM.INFO.EVENTS"), b"", reply=target)
    await eventually(lambda: len(errors) >= len(targets), 5, "refusals")
    # A role that may ask for nothing is refused the request itself.
    may_ask = any(verbs(ROLES[role], SUBJECTS))
    refused = "with reply of" if may_ask else "publish to"
    assert all(refused in error.lower() for error in errors)
    await client.close()


def foreign_subjects(settings: MakeSettings, role: str) -> Iterator[str]:
    """Subjects by which streams change, without those that the role may publish to."""
    permitted = list(services(ROLES[role], SUBJECTS))
    for stream in streams.streams(settings(), SUBJECTS):
        subjects = [subject.replace("*", "x") for subject in stream["subjects"]]
        for verb in ("DELETE", "PURGE", "UPDATE"):
            subjects.append(f"$JS.API.STREAM.{verb}.{stream['name']}")
            subjects.append(f"JSCORE.API.STREAM.{verb}.{stream['name']}")
        for subject in subjects:
            if not any(_matches(pattern, subject) for pattern in permitted):
                yield subject
    yield from (f"penstock.{denied.replace('*', 'x')}" for denied in ROLES[role].denied)
    if not ROLES[role].makes_queues:
        yield "$JS.API.CONSUMER.DELETE.JOBS.q_q"
        yield "$JS.API.CONSUMER.DURABLE.CREATE.JOBS.q_q"


def _matches(pattern: str, subject: str) -> bool:
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, tokens = wanted[:-1], tokens[: len(wanted) - 1]
    return len(wanted) == len(tokens) and all(
        one in ("*", other) for one, other in zip(wanted, tokens, strict=True)
    )


def _request(verb: str) -> str:
    return f"$JS.API.{verb.replace('*', 'r')}"


def _bodies(verb: str) -> list[bytes]:
    """Requests that are answered with a stored message, with nothing, and with JSON."""
    kind, _, place = verb.partition(".")
    requests: list[Any] = [None]
    if "MSG.GET" in verb or "DIRECT.GET" in verb:
        nothing = {"last_by_subj": "penstock.nothing.here.x"}
        requests = [{"seq": 1}, {"last_by_subj": EVENT}, {"seq": 1, "batch": 2}, nothing]
    elif "MSG.NEXT" in verb:
        requests = [{"batch": 1, "no_wait": True}]
    elif "PURGE" in verb:
        requests = [{"filter": "penstock.nothing"}]
    elif kind == "CONSUMER" and "CREATE" in verb:
        stream = place.split(".")[-2]
        config = {"name": "r", "ack_policy": "none", "mem_storage": True}
        requests = [{"stream_name": stream, "config": {**config, "inactive_threshold": 10**9}}]
    return [b"" if one is None else json.dumps(one).encode() for one in requests]


async def _answered(client: Client, verb: str) -> None:
    """The broker has come so far: the requests before this one have been answered too."""
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox, max_msgs=1)  # a pulled message has its own subject
    await client.publish(_request(verb), _bodies(verb)[0], reply=inbox)
    await answers.next_msg(5)


async def _states(bus: NatsBus) -> dict[str, tuple[object, ...]]:
    found = {}
    for info in await bus.stream_states():
        state = info["state"]
        found[info["config"]["name"]] = (
            info["created"],
            *(state[name] for name in ("messages", "first_seq", "last_seq")),
        )
    return found
