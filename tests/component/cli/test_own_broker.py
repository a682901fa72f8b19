"""Which address the broker of `penstock up` has, and that clients of one settings file find it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.errors import Refused
from penstock.cli.up import own_broker, state
from penstock.cli.up.own_broker import Place
from penstock.config import NoBrokerKnown, Settings
from penstock.config.load import check
from penstock.runtime import local_broker
from penstock.runtime.local_broker import awaited, reachable
from penstock.runtime.paths import free_port


def named(url: str, **further: str) -> Settings:
    return check({"nats": {"url": url, **further}})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".penstock").mkdir()
    return tmp_path / ".penstock"


@pytest.fixture
def taken() -> Callable[[], int]:
    servers = []

    def make() -> int:
        servers.append(socket.create_server(("127.0.0.1", 0)))
        return int(servers[-1].getsockname()[1])

    yield make
    for server in servers:
        server.close()


def test_port_and_token_are_those_of_the_last_start(folder: Path) -> None:
    first = own_broker.place(Settings(), None)
    assert first is not None
    assert (first.port, first.token[:3]) == (0, "up-")
    started = Place(free_port(), first.token)
    own_broker.remember(started)
    assert own_broker.place(Settings(), None) == started
    assert own_broker.place(Settings(), 0) == Place(0, first.token)
    assert (folder / "broker.json").stat().st_mode & 0o077 == 0


def test_what_another_user_could_have_written_is_not_used(folder: Path) -> None:
    own_broker.remember(Place(4777, "known-to-others"))
    (folder / "broker.json").chmod(0o644)
    place = own_broker.place(Settings(), None)
    assert place is not None
    assert place.port == 0
    assert place.token != "known-to-others"


def test_a_port_of_the_last_start_that_is_taken_is_refused_by_name(folder, taken) -> None:
    own_broker.remember(Place(port := taken(), "token"))
    with pytest.raises(Refused, match=rf"port {port}, the one of the last start .* --port \(0:"):
        own_broker.place(Settings(), None)
    with pytest.raises(Refused, match=rf"^port {port} is taken; choose another with --port$"):
        own_broker.place(Settings(), port)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_address_of_this_machine_without_a_server_names_the_port(folder, host: str) -> None:
    port = free_port()
    own_broker.remember(Place(1, "kept"))
    assert own_broker.place(named(f"nats://{host}:{port}"), None) == Place(port, "kept")
    own = own_broker.place(named(f"nats://chosen-token@{host}:{port}"), None)
    assert own == Place(port, "chosen-token")


def test_a_server_that_listens_is_used(folder, taken) -> None:
    assert own_broker.place(named(f"nats://127.0.0.1:{taken()}"), None) is None


def test_an_address_that_cannot_be_its_own_is_refused_at_once(folder: Path) -> None:
    port = free_port()
    for settings in (
        named(f"nats://127.0.0.1:{port},nats://127.0.0.1:{port}"),
        named(f"tls://127.0.0.1:{port}"),
        named(f"nats://user:word@127.0.0.1:{port}"),
        named(f"nats://127.0.0.1:{port}", user="ann", password="word"),
    ):
        with pytest.raises(Refused, match=r"no server listens at nats\.url, .*: start it, or"):
            own_broker.place(settings, None)
    with pytest.raises(Refused, match="--port is for a broker that 'penstock up' starts"):
        own_broker.place(named(f"nats://127.0.0.1:{port}"), 4222)


def test_clients_of_the_same_file_have_the_token_of_the_broker_here(folder: Path) -> None:
    settings = named("nats://localhost:4777")
    assert reachable(settings) == settings  # none runs here
    with state.held(folder):
        state.write_url("nats://up-token@127.0.0.1:4777", "http://127.0.0.1:1", folder)
        assert reachable(settings).nats.url == "nats://up-token@127.0.0.1:4777"
        for other in ("nats://localhost:4778", "nats://own@localhost:4777", "nats://broker:4777"):
            assert reachable(named(other)).nats.url == other


async def test_a_program_waits_for_the_penstock_up_that_starts_with_it(folder: Path) -> None:
    looking = asyncio.create_task(awaited(Settings()))
    await asyncio.sleep(0)
    with state.held(folder):
        await asyncio.sleep(0)
        assert not looking.done()
        state.write_url("nats://up-token@127.0.0.1:4777", "http://127.0.0.1:1", folder)
        settings = await looking
    assert settings.nats.url == "nats://up-token@127.0.0.1:4777"


async def test_a_program_learns_what_to_start_where_nothing_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_broker, "MOMENT_SECONDS", 0.0)
    with pytest.raises(NoBrokerKnown, match="start 'penstock up'"):
        await awaited(Settings())


async def test_the_wait_for_one_that_is_never_ready_ends(folder: Path) -> None:
    settings = check({"nats": {"connect_timeout_seconds": 0.01}})
    with state.held(folder), pytest.raises(NoBrokerKnown, match="still starting"):
        await awaited(settings)
