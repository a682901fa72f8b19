"""`penstock up` where it cannot start: one line that says what to do."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from tests.integration.shell import Shell
from tests.making import MakeSettings

from penstock.bus.nats import connect
from penstock.bus.protocol import StorageTooSmall
from penstock.runtime.broker import Broker


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("[pools.reports]\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = Shell(tmp_path).call("up", "--no-live", "--port", str(port), code=2)
    assert f"penstock: port {port} is taken; choose another with --port\n" in refused.stderr


def test_a_server_that_is_no_broker_is_named_with_its_setting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        (tmp_path / "penstock.toml").write_text(
            f'[nats]\nurl = "nats://127.0.0.1:{port}"\nconnect_timeout_seconds = 1\n'
            "[pools.reports]\n"
        )
        refused = Shell(tmp_path).call("up", "--no-live", code=1)
    assert f"no NATS server answered at nats://127.0.0.1:{port}" in refused.stderr
    assert "nats.url names this broker: start it, or leave nats.url out" in refused.stderr


def test_too_little_disk_is_told_with_what_is_needed_and_there(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(
        "[streams]\nevents_max_bytes = 1_000_000_000_000_000\n[pools.reports]\n"
    )
    refused = Shell(tmp_path).call("up", "--no-live", "--ephemeral", code=1)
    assert "it needs 1,250,000,000,000,000 bytes" in refused.stderr
    assert "lower streams.events_max_bytes" in refused.stderr
    assert "free, of which it takes 75 %" in refused.stderr


class SmallBroker(Broker):
    """It may store 8 MB."""

    def _config(self) -> str:
        config = json.loads(super()._config())
        config["jetstream"]["max_file_store"] = 8_000_000
        return json.dumps(config)


async def test_a_broker_with_too_little_storage_refuses_by_name(settings: MakeSettings) -> None:
    with SmallBroker() as small:
        made = settings(nats={"url": small.url}, logs={"enabled": False})
        with pytest.raises(
            StorageTooSmall, match=r"_EVENTS .* needs 20,000,000 .* streams\.events"
        ):
            await connect(made)
        with pytest.raises(
            StorageTooSmall, match=r"_LOGS cannot be made: .* lower logs\.max_bytes"
        ):
            await connect(settings(nats={"url": small.url}))
