"""What the broker refuses, with the configuration and the keys as they are shipped."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from tests.integration.guarded import GuardedBroker, join
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus import nkeys
from penstock.bus.nats import connect
from penstock.bus.protocol import Outgoing
from penstock.cli.deploy.keys import write
from penstock.cli.deploy.roles import ROLES, STREAMS

COMMAND, JOB, SNAPSHOT = "penstock.commands.h1", "penstock.jobs.q", "penstock.snapshots.pool.q"
EVENT, LEASE = "penstock.events.job.j.JobCompleted", "penstock.state.lease.decider"
DECISION, BEAT = "penstock.events.pool.q.ScalingDecisionMade", "penstock.beats.worker.h1.w"
DELETE, PURGE = "$JS.API.STREAM.DELETE.EVENTS", "$JS.API.STREAM.PURGE.EVENTS"
CREATE, UPDATE = "$JS.API.STREAM.CREATE.EVENTS", "$JS.API.STREAM.UPDATE.EVENTS"
TAKE, ACK = "$JS.API.CONSUMER.MSG.NEXT.JOBS.q_q", "$JS.ACK.JOBS.q_q.1.1.1.1.1"
MAKE, EMPTY = "$JS.API.CONSUMER.DURABLE.CREATE.JOBS.q_q", "$JS.API.STREAM.PURGE.JOBS"
ORDERS = [
    "penstock.state.hold.q",
    "penstock.state.host.h1",
    "penstock.notices.settings.reload",
    "penstock.notices.reload.h1",
    "penstock.notices.drain.h1",
]
"""What an operator alone may order."""
KEPT = ["$JS.API.STREAM.PURGE.CONSOLE", "$JS.API.STREAM.MSG.DELETE.CONSOLE"]
"""What nobody may: remove from the console's accounts and audit log."""
LINES = "penstock.logs.j"
"""What workers alone may write."""
FORBIDDEN = {
    "metrics": [COMMAND, JOB, EVENT, LEASE, DECISION, BEAT, CREATE, TAKE, ACK, *ORDERS],
    "decider": [JOB, SNAPSHOT, EVENT, BEAT, CREATE, TAKE, ACK, "penstock.state.pause.q", *ORDERS],
    "executor": [
        COMMAND,
        SNAPSHOT,
        LEASE,
        DECISION,
        CREATE,
        TAKE,
        "penstock.state.pause.q",
        *ORDERS,
    ],
    "worker": [COMMAND, SNAPSHOT, LEASE, DECISION, CREATE, "penstock.snapshots.host.h1", *ORDERS],
    "orchestrator": [COMMAND, SNAPSHOT, LEASE, DECISION, BEAT, TAKE, ACK, *ORDERS],
    "dispatcher": [COMMAND, SNAPSHOT, LEASE, DECISION, BEAT, CREATE, TAKE, ACK, *ORDERS],
    "operator": [COMMAND, SNAPSHOT, LEASE, DECISION, BEAT, CREATE, TAKE, ACK],
    "pipeline": [COMMAND, JOB, SNAPSHOT, EVENT, LEASE, DECISION, BEAT, CREATE, TAKE, ACK, *ORDERS],
    "console": [COMMAND, SNAPSHOT, LEASE, DECISION, BEAT, CREATE, TAKE, ACK, *KEPT],
    "console-reader": [
        *(COMMAND, JOB, SNAPSHOT, EVENT, LEASE, DECISION, BEAT, CREATE, TAKE, ACK),
        *("penstock.console.session.s.SessionStarted", "penstock.console.account.a.PasswordSet"),
        *KEPT,
        *ORDERS,
    ],
    "scaler": [COMMAND, JOB, SNAPSHOT, EVENT, LEASE, DECISION, BEAT, CREATE, TAKE, ACK, *ORDERS],
    "stream-reporter": [
        *(COMMAND, JOB, SNAPSHOT, EVENT, LEASE, DECISION, BEAT, CREATE, TAKE, ACK),
        *ORDERS,
    ],
    "subscriber": [
        COMMAND,
        JOB,
        SNAPSHOT,
        EVENT,
        LEASE,
        DECISION,
        BEAT,
        CREATE,
        TAKE,
        ACK,
        *ORDERS,
    ],
}
UNHEARD = {
    "metrics": ["penstock.commands.>"],
    "decider": ["penstock.jobs.>", "penstock.commands.>"],
    "executor": ["penstock.jobs.>"],
    "worker": ["penstock.jobs.>", "penstock.commands.>"],
    "orchestrator": ["penstock.jobs.>", "penstock.commands.>"],
    "dispatcher": ["penstock.jobs.>", "penstock.commands.>"],
    "operator": ["penstock.jobs.>"],
    "console": ["penstock.jobs.>", "penstock.commands.>", "penstock.console.>"],
    "pipeline": ["penstock.jobs.>", "penstock.commands.>", "penstock.beats.>"],
    "console-reader": [f"penstock.{s}.>" for s in ("jobs", "commands", "events", "console")],
    "scaler": [f"penstock.{s}.>" for s in ("jobs", "commands", "events", "beats")],
    "stream-reporter": [f"penstock.{s}.>" for s in ("jobs", "commands", "events", "beats")],
    "subscriber": ["penstock.jobs.>", "penstock.commands.>", "penstock.beats.>"],
}
EVERYBODY = [DELETE, "$JS.API.STREAM.RESTORE.EVENTS", "$SYS.REQ.SERVER.PING"]
INBOX = "penstock.events.workflow.x.InboxCarried"
ALL_BUT_THE_ORCHESTRATOR = [PURGE, UPDATE, MAKE, EMPTY, INBOX]


@pytest.mark.parametrize("role", ROLES)
async def test_what_a_role_must_not_publish_is_refused(guarded: GuardedBroker, role: str) -> None:
    errors: list[str] = []
    client = await join(guarded, role, errors)
    subjects = [*FORBIDDEN[role], *EVERYBODY]
    if role != "orchestrator":
        subjects += ALL_BUT_THE_ORCHESTRATOR
    subjects += [f"penstock.{denied.replace('*', 'x')}" for denied in ROLES[role].denied]
    if role != "worker":
        subjects.append(LINES)
    for subject in subjects:
        await client.publish(subject, b"{}")
    await _all_refused(client, errors, len(subjects))
    allowed = [s for s in subjects if not any(f'publish to "{s.lower()}"' in e for e in errors)]
    assert allowed == []


@pytest.mark.parametrize("role", [r for r, role in ROLES.items() if not role.surveys])
async def test_subjects_and_sizes_of_streams_that_a_role_does_not_read_are_refused(
    guarded: GuardedBroker, role: str
) -> None:
    """Subjects name jobs, queues and hosts."""
    errors: list[str] = []
    client = await join(guarded, role, errors)
    subjects = [f"$JS.API.STREAM.INFO.{s}" for s in STREAMS if s not in ROLES[role].reads]
    for subject in subjects:
        await client.publish(subject, b'{"subjects_filter": ">"}')
    await _all_refused(client, errors, len(subjects))
    allowed = [s for s in subjects if not any(f'publish to "{s.lower()}"' in e for e in errors)]
    assert allowed == []


@pytest.mark.parametrize("role", ROLES)
async def test_what_a_role_must_not_hear_is_refused(guarded: GuardedBroker, role: str) -> None:
    errors: list[str] = []
    client = await join(guarded, role, errors)
    subjects = [*UNHEARD[role], ">", "_INBOX.>", "$JS.>"]
    for subject in subjects:
        await client.subscribe(subject)
    await _all_refused(client, errors, len(subjects))
    heard = [s for s in subjects if not any(f'subscription to "{s.lower()}"' in e for e in errors)]
    assert heard == []


async def test_copies_of_a_stream_go_nowhere(
    guarded: GuardedBroker, settings: MakeSettings
) -> None:
    """Where a consumer shall deliver to stands in the request, which permissions do not look at."""
    settings.prefix = "penstock"
    orchestrator = await connect(guarded.settings(settings, "orchestrator"))
    attacker, victim = await join(guarded, "pipeline"), await join(guarded, "metrics")
    heard: list[str] = []
    copies: list[str] = []

    async def overhear(message: Msg) -> None:
        heard.append(message.subject)

    async def take(message: Msg) -> None:
        copies.append(message.subject)

    await victim.subscribe("penstock.jobs.*", cb=overhear)
    await victim.flush()
    inbox = attacker.new_inbox()
    await attacker.subscribe(inbox, cb=take)
    await orchestrator.append(Outgoing(EVENT, b'{"type":"WorkersScaled"}'))
    for number, target in enumerate([COMMAND, JOB, LEASE, inbox]):
        consumer = {"name": f"c{number}", "deliver_subject": target, "ack_policy": "none"}
        body = {"stream_name": "EVENTS", "config": {**consumer, "mem_storage": True}}
        await attacker.request(
            f"$JS.API.CONSUMER.CREATE.EVENTS.c{number}", json.dumps(body).encode()
        )
    await attacker.request("$JS.API.STREAM.INFO.EVENTS")
    await victim.flush()
    stored = [
        await orchestrator.last(stream, subject)
        for stream, subject in (("COMMANDS", COMMAND), ("JOBS", JOB), ("STATE", LEASE))
    ]
    assert (stored, heard, copies) == ([None] * 3, [], [])
    for client in (attacker, victim, orchestrator):
        await client.close()


async def test_anonymous_is_refused(guarded: GuardedBroker) -> None:
    trusted = ssl.create_default_context(cafile=f"{guarded.secrets}/metrics/ca.pem")
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        await nats.connect(
            guarded.url, tls=trusted, tls_handshake_first=True, allow_reconnect=False
        )


async def test_a_key_of_another_installation_is_refused(
    guarded: GuardedBroker, tmp_path: Path
) -> None:
    write(tmp_path / "other", "penstock", ["127.0.0.1"], datetime.now(UTC), 2)
    trusted = ssl.create_default_context(cafile=f"{guarded.secrets}/metrics/ca.pem")
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        await nats.connect(
            guarded.url,
            tls=trusted,
            tls_handshake_first=True,
            allow_reconnect=False,
            **nkeys.options(f"{tmp_path}/other/metrics/nkey.seed"),
        )


async def test_a_client_does_not_trust_a_broker_of_another_installation(
    guarded: GuardedBroker, tmp_path: Path
) -> None:
    write(tmp_path / "other", "penstock", ["127.0.0.1"], datetime.now(UTC), 2)
    with pytest.raises(ssl.SSLCertVerificationError):
        await nats.connect(
            guarded.url,
            tls=ssl.create_default_context(cafile=f"{tmp_path}/other/metrics/ca.pem"),
            tls_handshake_first=True,
            allow_reconnect=False,
            **nkeys.options(f"{guarded.secrets}/metrics/nkey.seed"),
        )


async def test_a_client_that_waits_for_the_server_s_first_line_is_asked_for_tls(
    guarded: GuardedBroker,
) -> None:
    client = await nats.connect(
        guarded.url,
        tls=ssl.create_default_context(cafile=f"{guarded.secrets}/subscriber/ca.pem"),
        allow_reconnect=False,
        **nkeys.options(f"{guarded.secrets}/subscriber/nkey.seed"),
    )
    writer = client._transport._io_writer
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
    await client.close()


async def test_plain_text_is_refused(guarded: GuardedBroker) -> None:
    host, port = guarded.url.removeprefix("nats://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(10):
        await reader.readline()  # INFO
        writer.write(b'CONNECT {"verbose":false}\r\nPUB penstock.jobs.q 2\r\nhi\r\nPING\r\n')
        answer = await reader.read()  # until the broker hangs up
    writer.close()
    assert b"PONG" not in answer


async def _all_refused(client: Client, errors: list[str], number: int) -> None:
    """Waits for so many refusals; fewer are the caller's to judge."""
    with suppress(AssertionError):
        await eventually(lambda: len(errors) >= number, 5)
    await client.close()
