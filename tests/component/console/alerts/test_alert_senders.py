"""Senders against a real HTTP receiver and a real SMTP server."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from pathlib import Path

import pytest
from tests.component.console.alerts.receivers import http_receiver, smtp_server

from penstock.console.alerts.addresses import AddressRefused, check_address
from penstock.console.alerts.sealing import Sealing
from penstock.console.alerts.senders import Senders
from penstock.console.alerts.webhook import SendFailed
from penstock.console.core.alerts.channels import BadChannel, Channel, Secrets, check
from penstock.console.core.alerts.states import Entry, Notification

NOTICE = Notification(
    id="n1",
    channel="c",
    at=1_000_000.0,
    entries=(
        Entry(
            kind="firing",
            alert="k",
            incident="i",
            rule="Reports burn",
            severity="page",
            labels={"pool": "reports"},
            text="At this pace the budget of reports is used up in 5 h 20 min.",
            advice="Add a host.",
            link="/pools/reports",
            fired_at=999_940.0,
        ),
    ),
)
LOOPBACK = ("127.0.0.0/8",)


def sealed(folder: Path, kind: str, url: str, key: str = "") -> tuple[Sealing, Channel]:
    sealing = Sealing("", folder)
    box = sealing.seal("c", Secrets(url=url, key=key))
    return sealing, Channel(id="c", name="c", kind=kind, sealed=box)  # type: ignore[arg-type]


async def send(folder: Path, kind: str, url: str, key: str = "", seconds: float = 5.0) -> None:
    sealing, channel = sealed(folder, kind, url, key)
    senders = Senders(sealing, LOOPBACK, "https://console.example", seconds)
    await senders.send(channel, NOTICE)


async def test_a_webhook_is_signed_and_names_its_notification(tmp_path: Path) -> None:
    async with http_receiver() as receiver:
        await send(tmp_path, "webhook", receiver.url, "a key")
    ((headers, body),) = receiver.requests
    assert headers["penstock-notification"] == "n1"
    assert body["title"] == "Firing: Reports burn"
    assert body["alerts"][0]["link"] == "https://console.example/pools/reports"
    stamp, _, found = headers["penstock-signature"].partition(",v1=")
    signed = stamp.removeprefix("t=").encode() + b"." + receiver.bodies[0]
    assert hmac.compare_digest(found, hmac.new(b"a key", signed, hashlib.sha256).hexdigest())


@pytest.mark.parametrize(
    ("status", "reason"), [(500, "status 500"), (302, "status 302"), (0, "no HTTP")]
)
async def test_an_answer_that_is_no_success_fails(tmp_path: Path, status: int, reason: str) -> None:
    async with http_receiver() as receiver:
        receiver.answers = [status]
        with pytest.raises(SendFailed, match=reason):
            await send(tmp_path, "webhook", receiver.url)
    assert len(receiver.requests) == 1


async def test_a_receiver_that_does_not_answer_is_left_in_time(tmp_path: Path) -> None:
    async with http_receiver() as receiver:
        receiver.delay = asyncio.Event()
        with pytest.raises(SendFailed, match="no answer within"):
            await send(tmp_path, "webhook", receiver.url, seconds=0.2)
        receiver.delay.set()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.1"])
async def test_private_addresses_are_refused_when_the_connection_is_made(
    tmp_path: Path, host: str
) -> None:
    sealing, channel = sealed(tmp_path, "webhook", f"http://{host}:9/")
    with pytest.raises(SendFailed, match=r"console\.alert_networks"):
        await Senders(sealing).send(channel, NOTICE)


@pytest.mark.parametrize(
    "address", ["::ffff:127.0.0.1", "2002:7f00:1::", "0.0.0.0", "fe80::1%lo", "100.64.0.1"]
)
def test_other_spellings_of_private_addresses_are_refused(address: str) -> None:
    with pytest.raises(AddressRefused):
        check_address(address, ())
    check_address("93.184.216.34", ())
    check_address("::ffff:127.0.0.1", LOOPBACK)


async def test_mail_is_sent_by_a_process_of_its_own(tmp_path: Path) -> None:
    async with smtp_server() as mailbox:
        url = (
            f"mailto://127.0.0.1:{mailbox.port}/?from=a@example.org&to=b@example.org&mode=insecure"
        )
        await send(tmp_path, "apprise", url, seconds=20)
    (mail,) = mailbox.messages
    assert "Firing: Reports burn" in mail
    assert "b@example.org" in mail


async def test_mail_to_this_machine_is_refused_unless_allowed(tmp_path: Path) -> None:
    async with smtp_server() as mailbox:
        url = (
            f"mailto://127.0.0.1:{mailbox.port}/?from=a@example.org&to=b@example.org&mode=insecure"
        )
        sealing, channel = sealed(tmp_path, "apprise", url)
        with pytest.raises(SendFailed, match="did not take"):
            await Senders(sealing, (), "", 20).send(channel, NOTICE)
    assert mailbox.messages == []


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("webhook", "file:///etc/passwd"),
        ("webhook", "http://a b/"),
        ("webhook", ""),
        ("apprise", "exec://x"),
        ("apprise", "syslog://"),
        ("apprise", "json://127.0.0.1/"),
    ],
)
def test_addresses_of_other_kinds_are_refused(kind: str, url: str) -> None:
    with pytest.raises(BadChannel):
        check(kind, Secrets(url=url))


def test_a_channel_shows_no_password() -> None:
    assert check("apprise", Secrets(url="mailtos://ada:secret@example.org?to=x")) == (
        "mailtos",
        "example.org",
    )
    assert check("apprise", Secrets(url="slack://tokenA/tokenB/tokenC")) == ("slack", "")


async def test_secrets_open_for_their_channel_with_their_key_alone(tmp_path: Path) -> None:
    sealing, channel = sealed(tmp_path / "a", "webhook", "http://example.org/")
    assert b"example.org" not in channel.sealed.encode()
    assert sealing.open(channel).url == "http://example.org/"
    other = Channel(id="d", name="d", kind="webhook", sealed=channel.sealed)
    with pytest.raises(SendFailed, match="cannot be opened"):
        sealing.open(other)
    with pytest.raises(SendFailed, match=r"encryption\.key_file"):
        Sealing("", tmp_path / "b").open(channel)


async def test_the_log_is_a_channel(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await Senders(Sealing("", tmp_path)).send(Channel(id="l", name="l", kind="log"), NOTICE)
    assert "At this pace the budget of reports" in caplog.text
