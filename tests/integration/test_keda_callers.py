"""Who may call the external scaler: nobody from outside by default, then by certificate alone."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
from tests.installation import RunningService
from tests.integration.guarded import GuardedBroker
from tests.integration.keda import BUSY, POOLS, Keda, Site, answered, refused
from tests.making import MakeSettings

from penstock.bus.nats import connect
from penstock.bus.protocol import Outgoing
from penstock.cli.deploy import certificates
from penstock.config import ConfigError
from penstock.config.load import check
from penstock.config.topology import pools
from penstock.decider.scaler import app, binding
from penstock.decider.scaler.decisions import Decisions, UnknownPool
from penstock.decider.scaler.servicer import Servicer
from penstock.events.envelope import encode
from penstock.events.scaling import Reason, ScalingDecisionMade
from penstock.events.subjects import Subjects
from penstock.runtime.paths import free_port
from penstock.testing.memory.bus import MemoryBus


class Files:
    """An authority with one certificate, as files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        made = certificates.make(["127.0.0.1"], datetime.now(UTC), 2)
        self.authority, self.certificate, self.key = (
            folder / name for name in ("ca.pem", "server.pem", "server.key")
        )
        self.authority.write_bytes(made.authority)
        self.certificate.write_bytes(made.certificate)
        self.key.write_bytes(made.key)

    def tables(self, client_authority: Path) -> dict[str, str]:
        return {
            "tls_certificate_file": str(self.certificate),
            "tls_key_file": str(self.key),
            "tls_client_ca_file": str(client_authority),
        }

    def channel(self, server_authority: Path, *, own: bool = True) -> grpc.ChannelCredentials:
        pair = (self.key.read_bytes(), self.certificate.read_bytes()) if own else (None, None)
        return grpc.ssl_channel_credentials(server_authority.read_bytes(), *pair)


async def test_only_a_certificate_of_the_named_authority_gets_an_answer(settings, tmp_path) -> None:
    ours, theirs, others = (Files(tmp_path / name) for name in ("ours", "theirs", "others"))
    site = Site("memory", settings, **ours.tables(theirs.authority))
    await site.open()
    try:
        await site.start_scaler()
        await site.start()
        await site.measure(**BUSY)
        place = f"127.0.0.1:{site.port}"
        async with Keda(place, theirs.channel(ours.authority)) as keda:
            await answered(keda.pods, 10)
        for wrong in (
            others.channel(ours.authority),
            ours.channel(ours.authority),
            theirs.channel(ours.authority, own=False),
            None,
        ):
            async with Keda(place, wrong) as keda:
                assert (await refused(keda.is_active))[0] is grpc.StatusCode.UNAVAILABLE
    finally:
        await site.close()


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ({"address": "0.0.0.0"}, "other machines reach"),
        ({"tls_certificate_file": "server.pem"}, "TLS needs all of"),
        ({"stale_seconds": 1.0}, "expected 10 or more"),
        (
            dict.fromkeys(("tls_certificate_file", "tls_key_file"), "/nowhere.pem")
            | {"tls_client_ca_file": "/nowhere.pem"},
            "cannot be read",
        ),
    ],
)
def test_settings_that_would_leave_it_open_or_silent_are_refused(tables, text) -> None:
    with pytest.raises(ConfigError, match=text):
        binding.check(check({"scaler": tables, "pools": {"emails": {}}}))


async def test_a_taken_port_is_refused_with_what_to_do(settings: MakeSettings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        configured = settings(scaler={"port": port}, pools=POOLS)
        with pytest.raises(ConfigError, match=r"set scaler\.port to a free port"):
            app.listening(configured, Servicer(Decisions(MemoryBus(), Subjects(), {}, 1.0), 1))


async def test_a_key_of_its_own_is_enough(guarded: GuardedBroker, settings) -> None:
    settings.prefix, port = "penstock", free_port()
    tables = {"pools": POOLS, "scaler": {"port": port}}
    keys = {
        role: guarded.settings(settings, role, **tables)
        for role in ("orchestrator", "decider", "scaler")
    }
    await (await connect(keys["orchestrator"], makes_streams=True)).close()
    decides, answers = await connect(keys["decider"]), await connect(keys["scaler"])
    answers.reader.makes_consumers = True
    running = RunningService("scaler", keys["scaler"], answers, app.body)
    reason = Reason(step="strategy", rule="deadline.need", workers=4, text="4 wanted")
    made = ScalingDecisionMade(
        at=datetime.fromtimestamp(decides.now(), UTC),
        pool="emails",
        current=0,
        target=0,
        reasons=(reason,),
        advice=True,
        strategy="deadline",
        sla_seconds=30.0,
    )
    await decides.append(Outgoing(Subjects().event(made), encode(made)))
    async with Keda(f"127.0.0.1:{port}") as keda:
        await answered(keda.pods, 4)
    await running.stop()
    await decides.close()
    assert guarded.violations() == []


def test_the_name_of_no_pool_is_compared_with_a_few_alone() -> None:
    """The comparison takes seconds where there are ten thousand, and no caller is answered then."""
    [pool, *_] = pools(check({"pools": POOLS})).values()
    for count, text in ((2, "did you mean 'pool-1'"), (10_000, "penstock pool ls")):
        configured = dict.fromkeys((f"pool-{number}" for number in range(count)), pool)
        decisions = Decisions(MemoryBus(settings=check({})).client(), Subjects(), configured, 3.0)
        with pytest.raises(UnknownPool, match=text):
            decisions.check("pool-1x")
