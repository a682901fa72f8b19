"""A process of another user that takes the port of a crashed `penstock up` is told nothing."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.peers import new_token, owner_in, user_number, user_of
from penstock.bus.protocol import BusUnavailable, Outgoing
from penstock.cli.errors import Refused
from penstock.cli.up import own_broker
from penstock.config import ConfigError
from penstock.pipeline.broker.link import Link
from penstock.pipeline.core.options import Reach
from penstock.runtime.broker import Broker

OTHER_USER = 5002
INFO = b'INFO {"server_id":"x","headers":true,"max_payload":1000000,"auth_required":true}\r\n'
needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root can act as two users; run as root to see it"
)


@contextmanager
def listening(port: int, user: int) -> Iterator[tuple[int, int]]:
    """A process of ``user`` that speaks as a broker: its port, and where its findings are read."""
    reading, writing = os.pipe()
    own, theirs = os.pipe()
    if not (child := os.fork()):
        with suppress(BaseException):
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            _serve(port, writing, theirs)
        os._exit(0)
    os.close(writing)
    os.close(theirs)
    taken = int(os.read(own, 20))
    try:
        yield taken, reading
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(own)


def _serve(port: int, writing: int, announcing: int) -> None:
    with socket.socket() as listener:  # its socket must be made by that user
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        os.write(announcing, b"%d" % listener.getsockname()[1])
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(INFO)
                connection.settimeout(2)
                with suppress(OSError):
                    os.write(writing, connection.recv(1000))


def test_a_token_names_the_user_of_its_broker() -> None:
    assert owner_in(new_token()) == os.getuid()
    for other in ("", "secret", "up-0-short", f"up-x-{'a' * 43}", f"{new_token()}x"):
        assert owner_in(other) is None


def test_the_user_of_the_other_end_is_found() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as client:
            accepted, _ = listener.accept()
            assert user_of(client.getpeername(), client.getsockname()) == os.getuid()
            accepted.close()
            assert user_of(client.getpeername(), client.getsockname()) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_user_behind_a_server_of_all_addresses_is_found(host: str) -> None:
    listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    with listener, socket.create_connection((host, listener.getsockname()[1])) as client:
        accepted, _ = listener.accept()
        with accepted:
            assert user_of(client.getpeername()[:2], client.getsockname()[:2]) == os.getuid()


@needs_root
async def test_another_users_process_on_the_port_hears_nothing(settings: MakeSettings) -> None:
    url = "nats://{}@127.0.0.1:{}".format
    with listening(0, OTHER_USER) as (port, heard):
        known = settings(nats={"url": url(new_token(), port), "connect_timeout_seconds": 1})
        with pytest.raises(BusUnavailable, match=f"user {OTHER_USER} has it; it was sent nothing"):
            await connect(known)
        with pytest.raises(BusUnavailable):
            Link(Reach(servers=url(new_token(), port), timeout_seconds=1)).__enter__()
        assert b"CONNECT" not in _all_of(heard)


@needs_root
async def test_a_plain_address_on_loopback_is_for_a_broker_of_this_user_or_root(
    settings: MakeSettings, tmp_path: Path
) -> None:
    with listening(0, OTHER_USER) as (port, heard):
        reach = {"url": f"nats://127.0.0.1:{port}", "connect_timeout_seconds": 1}
        for more in ({}, {"broker_user": "5003"}, {"user": "ann", "password": "word"}):
            with pytest.raises(BusUnavailable, match=r"set nats\.broker_user to its user's name"):
                await connect(settings(nats=reach | more))
            with pytest.raises(Refused, match=f"user {OTHER_USER} listens on port {port} of this"):
                own_broker.place(settings(nats=reach | more), None, tmp_path)
        with pytest.raises(BusUnavailable):
            Link(Reach(servers=reach["url"], timeout_seconds=1)).__enter__()
        assert b"CONNECT" not in _all_of(heard)
        chosen = settings(nats=reach | {"broker_user": str(OTHER_USER)})
        assert own_broker.place(chosen, None, tmp_path) is None
        with pytest.raises(BusUnavailable):  # it never answers, but was let in
            await connect(chosen)
        assert b"CONNECT" in _all_of(heard)


def test_a_broker_user_that_is_not_there_is_refused() -> None:
    assert user_number("root") == user_number("0") == 0
    with pytest.raises(ConfigError, match=r"nats\.broker_user: this machine has no user 'n/a'"):
        user_number("n/a")


@needs_root
async def test_after_a_crash_clients_wait_for_their_own_broker(settings: MakeSettings) -> None:
    with Broker(token=new_token()) as broker:
        bus = await connect(settings(nats={"url": broker.url, "request_timeout_seconds": 1.0}))
        port = int(broker.url.rpartition(":")[2])
        subject = bus.subjects.queue("q")
        await bus.append(Outgoing(subject, b"before"))
        broker.kill()
        with listening(port, OTHER_USER) as (_, heard):
            await eventually(lambda: f"user {OTHER_USER} has it" in bus.trouble, 10, "refused")
            assert b"CONNECT" not in _all_of(heard)
        broker.start()

        async def stored() -> int:
            with suppress(BusUnavailable):
                return await bus.append(Outgoing(subject, b"after"))
            return 0

        await eventually(stored, 10, "stored")
        await bus.close()


def _all_of(heard: int) -> bytes:
    os.set_blocking(heard, False)
    with suppress(BlockingIOError):
        return os.read(heard, 100_000)
    return b""
