"""A broker that refuses our key, or what our key asks for: a real one, with keys and TLS."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.integration.guarded import GuardedBroker
from tests.making import MakeSettings

from penstock.bus.access import NotPermitted
from penstock.bus.nats import connect
from penstock.bus.protocol import BusUnavailable, NotLetIn, Outgoing
from penstock.cli import main as cli
from penstock.cli.deploy.keys import write

SECONDS = 20.0


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded")) as broker:
        make = MakeSettings(lambda: broker.url, str(tmp_path_factory.mktemp("run")))
        make.prefix = "penstock"

        async def make_streams() -> None:
            await (await connect(broker.settings(make, "orchestrator"))).close()

        asyncio.run(make_streams())
        yield broker


def command(
    broker: GuardedBroker, folder: Path, nkey_file: Path | None, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """A `penstock` command with that key; one that does not end fails the test."""
    lines = ["[nats]", f'url = "{broker.url}"', f'ca_file = "{broker.secrets}/dispatcher/ca.pem"']
    if nkey_file:
        lines.append(f'nkey_file = "{nkey_file}"')
    config = folder / "penstock.toml"
    config.write_text("\n".join([*lines, "connect_timeout_seconds = 2", ""]), "utf-8")
    return subprocess.run(
        [sys.executable, "-m", cli.__name__, "--config", str(config), *arguments],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.parametrize("key", ["none", "of-another-installation"])
def test_a_command_whose_key_the_broker_refuses_ends_and_names_the_setting(
    key: str, tmp_path: Path, guarded: GuardedBroker
) -> None:
    nkey_file = None
    if key != "none":
        write(tmp_path / "others", "penstock", ["127.0.0.1"], datetime.now(UTC), 2)
        nkey_file = tmp_path / "others/dispatcher/nkey.seed"
    done = command(guarded, tmp_path, nkey_file, "queue", "ls")
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "refuses" in line
    assert "nats.nkey_file" in line
    assert "start one" not in line


def test_a_command_that_the_key_may_not_give_says_so_and_names_the_subject(
    tmp_path: Path, guarded: GuardedBroker
) -> None:
    key = guarded.secrets / "dispatcher/nkey.seed"
    done = command(guarded, tmp_path, key, "queue", "pause", "orders")
    assert done.returncode == 1
    refused = [line for line in done.stderr.splitlines() if line.startswith("penstock: ")]
    assert len(refused) == 1
    assert f"{key} may not publish to $JS.API." in refused[0]
    assert "operator" in refused[0]
    assert "did not answer" not in done.stderr
    assert "start one" not in done.stderr


async def test_what_a_key_may_not_ask_or_store_fails_at_once(
    guarded: GuardedBroker, settings: MakeSettings
) -> None:
    """At once: before the time that an answer may take, which here never ends."""
    settings.prefix = "penstock"
    made = guarded.settings(settings, "dispatcher", nats={"request_timeout_seconds": 600})
    bus = await connect(made)
    event, command = bus.subjects.events("pool", "a", "PoolScaled"), bus.subjects.command("a")
    allowed = Outgoing(bus.subjects.events("job", "a", "JobDispatched"), b"1")
    try:
        async with asyncio.timeout(SECONDS):
            with pytest.raises(NotPermitted, match=r"CONSUMER\.LIST\.JOBS"):
                await bus.depths()
            with pytest.raises(NotPermitted, match=r"DIRECT\.GET\.COMMANDS"):
                await bus.history(bus.subjects.commands_stream, ">")
            with pytest.raises(NotPermitted, match=event.replace(".", r"\.")):
                await bus.append(Outgoing(event, b"1"))
            with pytest.raises(NotPermitted):
                await bus.append_atomic([allowed, Outgoing(event, b"1"), Outgoing(command, b"1")])
            stored, refused = await bus.append_many([allowed, Outgoing(command, b"1")])
        assert isinstance(stored, int)
        assert isinstance(refused, NotPermitted)
        assert await bus.append(allowed) == stored + 1
    finally:
        await bus.close()


async def test_connecting_ends_in_time_whatever_the_client_waits_for_then(
    guarded: GuardedBroker, settings: MakeSettings
) -> None:
    """One at a time seldom shows it: the time must be over just when the broker answers."""
    ca_file = f"{guarded.secrets}/dispatcher/ca.pem"

    def attempt(number: int) -> asyncio.Task[object]:
        nats = {"ca_file": ca_file, "connect_timeout_seconds": 0.7 + number / 100}
        made = settings(nats={"url": guarded.url, **nats})
        return asyncio.create_task(connect(made))

    connecting = [attempt(number) for number in range(40)]
    _, endless = await asyncio.wait(connecting, timeout=SECONDS)
    for task in endless:
        task.cancel()
    outcomes = await asyncio.gather(*connecting, return_exceptions=True)
    assert not endless
    assert {type(outcome) for outcome in outcomes} <= {NotLetIn, BusUnavailable}
