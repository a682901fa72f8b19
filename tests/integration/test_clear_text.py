"""A broker, or whoever stands before it, that does not ask for TLS: nothing is shown to it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus import access
from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import BusRefused, BusUnavailable
from penstock.cli.deploy.keys import write
from penstock.pipeline.broker.link import Link
from penstock.pipeline.core.options import Reach

_TLS_HANDSHAKE = b"\x16\x03"
_INFO = {"server_id": "x", "version": "2.15.1", "headers": True, "max_payload": 1_000_000}


class Impostor:
    """What a man in the middle is: it speaks NATS, asks for credentials, and not for TLS.

    Attributes:
        heard: what clients sent, one entry a connection that sent something.
        asks_for_tls: false; no TLS is required, as its first line says.
    """

    def __init__(self, **info: Any) -> None:
        self.heard: list[bytes] = []
        self.info = {**_INFO, "nonce": "abcdefghijk", "auth_required": True, **info}
        self.port = 0

    @asynccontextmanager
    async def listening(self, host: str = "127.0.0.1") -> AsyncIterator[Impostor]:
        server = await asyncio.start_server(self._serve, host, 0)
        self.port = server.sockets[0].getsockname()[1]
        yield self
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps(self.info).encode() + b"\r\n")
        with suppress(OSError):
            if first := await reader.read(1000):
                self.heard.append(first)
            if first.startswith(b"CONNECT"):
                writer.write(b"PONG\r\n")
                self.heard.append(await reader.read(1000))
        writer.close()


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("impostor") / "secrets"
    write(folder, "penstock", ["127.0.0.1"], datetime.now(UTC), 2)
    return folder / "pipeline"


async def by_bus(make: MakeSettings, url: str, secrets: Path) -> None:
    keys = {"nkey_file": f"{secrets}/nkey.seed", "ca_file": f"{secrets}/ca.pem"}
    await connect(make(nats={"url": url, "connect_timeout_seconds": 1, **keys}))


async def by_link(_: MakeSettings, url: str, secrets: Path) -> None:
    keys = {"nkey": f"{secrets}/nkey.seed", "ca_file": f"{secrets}/ca.pem"}
    await asyncio.to_thread(Link(Reach(servers=url, timeout_seconds=1, **keys)).__enter__)


@pytest.mark.parametrize("way", [by_bus, by_link])
@pytest.mark.parametrize("scheme", ["nats", "tls"])
async def test_a_broker_that_does_not_ask_for_tls_sees_a_handshake_and_nothing_else(
    settings: MakeSettings, secrets: Path, scheme: str, way: Callable[..., Any]
) -> None:
    async with Impostor().listening() as impostor:
        with pytest.raises(BusUnavailable, match=f":{impostor.port}"):
            await way(settings, f"{scheme}://127.0.0.1:{impostor.port}", secrets)
        await eventually(lambda: impostor.heard)
        assert all(first.startswith(_TLS_HANDSHAKE) for first in impostor.heard)


async def test_a_server_that_another_announces_gets_no_credentials_in_clear_text(
    settings: MakeSettings, secrets: Path
) -> None:
    """The first is on loopback, where no TLS is needed; it names one that is not."""
    if not (host := _other_address()):
        pytest.skip("this machine has no address but loopback")
    async with Impostor().listening(host) as elsewhere:
        announced = f"{host}:{elsewhere.port}"
        async with Impostor(connect_urls=[announced]).listening() as impostor:
            url = f"nats://127.0.0.1:{impostor.port}"
            key = {"nkey_file": f"{secrets}/nkey.seed", "request_timeout_seconds": 0.2}
            bus = NatsBus(settings(nats={"url": url, **key}))
            opening = asyncio.create_task(bus.open("test"))
            await eventually(lambda: "credentials for another machine" in bus.trouble)
            opening.cancel()
            await bus.close()
        assert elsewhere.heard == []


@pytest.mark.parametrize("url", ["nats://10.0.0.1:4222", "nats://127.0.0.1:1,broker.example:4222"])
@pytest.mark.parametrize("way", ["nkey_file", "credentials_file", "token", "user"])
def test_credentials_for_another_machine_need_tls(secrets: Path, url: str, way: str) -> None:
    with pytest.raises(BusRefused, match=r"10\.0\.0\.1|broker\.example .* set nats\.ca_file"):
        access.options(url, **{way: f"{secrets}/nkey.seed"})


def test_a_password_in_the_address_of_another_machine_needs_tls_and_is_not_shown() -> None:
    with pytest.raises(BusRefused, match=r"10\.0\.0\.1 .* set nats\.ca_file") as refused:
        access.options("nats://me:hidden@10.0.0.1:4222")
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "[::1]"])
def test_credentials_for_this_machine_need_none(secrets: Path, host: str) -> None:
    assert "tls" not in access.options(f"nats://{host}:4222", nkey_file=f"{secrets}/nkey.seed")


@pytest.mark.parametrize("url", ["ws://10.0.0.1", "http://me:hidden@a", "nats://", "nats://a:x"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BusRefused, match=r"expected nats://HOST:PORT or tls://") as refused:
        access.options(url)
    assert "hidden" not in str(refused.value)


def _other_address() -> str | None:
    for addresses in psutil.net_if_addrs().values():
        for address in addresses:
            if address.family == socket.AF_INET and not access.is_loopback(address.address):
                return str(address.address)
    return None
