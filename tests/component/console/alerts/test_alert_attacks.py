"""What makers of channels, jobs whose errors are quoted, and strangers try with alerts."""

from __future__ import annotations

import asyncio
import email
import email.policy
import logging
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.component.console.alerts.receivers import http_receiver, smtp_server
from tests.component.console.alerts.test_alert_api import RULE, ada, call, site
from tests.component.console.alerts.test_alert_senders import LOOPBACK, NOTICE, sealed
from tests.component.console.conftest import Site
from tests.waiting import eventually

from penstock.console.alerts.senders import Senders
from penstock.console.alerts.webhook import SendFailed
from penstock.console.core.alerts import messages
from penstock.console.core.alerts.channels import BadChannel, Secrets, check
from penstock.events.worker import HostLost

__all__ = ["ada", "site"]
EVIL_TEXT = "<img src=//evil.example/x> {{app_id}} {0.__class__} %(id)s ${PATH} @everyone <!here>"


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0",
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "[::]",
        "[::1]",
        "[::127.0.0.1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:0:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::a00:1]",
        "[2002:7f00:1::1]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[fec0::1]",
        "user:word@127.0.0.1",
        "example.org@127.0.0.1",
    ],
)
async def test_this_machine_and_private_networks_are_refused_however_they_are_spelled(
    tmp_path: Path, host: str
) -> None:
    sealing, channel = sealed(tmp_path, "webhook", f"http://{host}:9/")
    with pytest.raises(SendFailed, match=r"console\.alert_networks"):
        await Senders(sealing).send(channel, NOTICE)


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["127.0.0.1", "127.0.0.2"]  # what a name leads to, at the first and second question
    real = socket.getaddrinfo

    def resolve(host: str, *args: Any, **options: Any) -> Any:
        return real(answers.pop(0) if host == "rebinds.example" else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    async with http_receiver() as receiver:
        url = f"http://rebinds.example:{receiver.port}/"
        sealing, channel = sealed(tmp_path, "webhook", url)
        await Senders(sealing, ("127.0.0.1/32",)).send(channel, NOTICE)
    assert receiver.requests[0][0]["host"] == f"rebinds.example:{receiver.port}"
    assert answers == ["127.0.0.2"]


async def test_a_name_with_one_private_address_among_others_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 9)) for ip in ("1.1.1.1", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    sealing, channel = sealed(tmp_path, "webhook", "http://both.example:9/")
    with pytest.raises(SendFailed, match=r"10\.0\.0\.1"):
        await Senders(sealing).send(channel, NOTICE)


@pytest.mark.parametrize(
    "url",
    ["https://a.example#@b.example/", "https://a.example/x@b.example", "https://a.example?@b"],
)
def test_the_host_that_is_shown_is_the_one_that_is_connected_to(url: str) -> None:
    assert check("webhook", Secrets(url=url)) == ("https", "a.example")


@pytest.mark.parametrize(
    "line",
    [
        "open('/etc/passwd')",
        "open('attachment', 'w')",
        "open('/proc/self/environ')",
        "os.open('/etc/shadow', os.O_RDONLY)",
        "subprocess.run(['true'])",
        "os.system('true')",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "os.execv('/bin/true', ['true'])",
        "socket.socket(socket.AF_UNIX).connect('/run/docker.sock')",
        "socket.create_connection(('127.0.0.1', 9))",
        "socket.socket().connect_ex(('localhost', 9))",
        "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('169.254.169.254', 9))",
    ],
)
async def test_an_apprise_address_reads_no_file_runs_nothing_and_reaches_no_private_address(
    line: str,
) -> None:
    program = (
        "import os, socket, subprocess\n"
        "from penstock.console.alerts.apprise_child import guard\n"
        f"guard([])\n{line}"
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-IBc", program, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await child.communicate()
    assert child.returncode == 1
    last = errors.decode().strip().splitlines()[-1]
    assert last.startswith(("PermissionError", "penstock.console.alerts.addresses.AddressRefused"))


async def test_text_of_jobs_is_text_in_a_mail(tmp_path: Path) -> None:
    evil = msgspec.structs.replace(
        NOTICE.entries[0], text=EVIL_TEXT, rule="Late\r\nBcc: evil@example.org"
    )
    notice = msgspec.structs.replace(NOTICE, entries=(evil,))
    async with smtp_server() as mailbox:
        url = (
            f"mailto://127.0.0.1:{mailbox.port}/?from=a@example.org&to=b@example.org&mode=insecure"
        )
        sealing, channel = sealed(tmp_path, "apprise", url)
        await Senders(sealing, LOOPBACK, "", 20).send(channel, notice)
    (text,) = mailbox.messages
    mail = email.message_from_string(text, policy=email.policy.default)
    assert mail["bcc"] is None
    assert mail["subject"] == "Firing: Late Bcc: evil@example.org"
    assert mailbox.receivers == [["b@example.org"]]
    pages = [part for part in mail.walk() if part.get_content_type() == "text/html"]
    assert not [page for page in pages if "<img" in page.get_content()]
    plain = mail.get_body(("plain",))
    assert plain is not None
    assert EVIL_TEXT in plain.get_content()


def test_text_of_jobs_notifies_no_members_of_a_chat() -> None:
    shown = messages.without_mentions(EVIL_TEXT)
    assert "@everyone" not in shown
    assert "<!here" not in shown


async def test_an_address_adds_no_header_to_a_request(tmp_path: Path) -> None:
    async with http_receiver() as receiver:
        url = f"http://127.0.0.1:{receiver.port}/a%0d%0aX-Evil:%201?b=%0d%0aX-Evil:%201"
        sealing, channel = sealed(tmp_path, "webhook", url)
        await Senders(sealing, LOOPBACK).send(channel, NOTICE)
    assert "x-evil" not in receiver.requests[0][0]
    for url in (
        "http://a.example/\r\nX-Evil: 1",
        "http://a.example/\tx",
        "http://a.example/\x7f\n",
    ):
        with pytest.raises(BadChannel):
            check("webhook", Secrets(url=url))


async def test_secrets_of_a_channel_are_nowhere_but_sealed(
    site: Site, ada: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[str] = []

    async def ask(method: str, path: str, body: Any = None) -> None:
        answer = await ada.request(method, f"/api/v1{path}", json=body)
        answers.append(answer.text)

    with caplog.at_level(logging.DEBUG):
        hook = {"id": "a", "name": "a", "kind": "webhook", "key": "s3cret"}
        for url in ("http://u:s3cret@127.0.0.1:9/s3cret", "http://127.0.0.1:s3cret/", "s3cret"):
            await ask("POST", "/alerts/channels", {**hook, "url": url})
            await ask("PUT", "/alerts/channels/a", {**hook, "url": url, "is_enabled": False})
        mail = "mailto://u:s3cret@127.0.0.1:9/?from=a@example.org&to=b@example.org&mode=insecure"
        await ask(
            "POST", "/alerts/channels", {"id": "m", "name": "m", "kind": "apprise", "url": mail}
        )
        chat = {"id": "c", "name": "c", "kind": "apprise", "url": "tgram://s3cret:s3cret"}
        await ask("POST", "/alerts/channels", chat)
        for name in "amc":
            await ask("POST", f"/alerts/channels/{name}/test")
        for path in ("/alerts/channels", "/notifications", "/settings", "/audit"):
            await ask("GET", path)
        answers.append((await ada.get("/alerts/channels")).text)
    stored = site.bus.stored(site.subjects.console_stream, ">")
    assert len(site.console.alerts.book.channels) == 3
    assert not [text for text in answers if "s3cret" in text]
    assert not [one for one in stored if b"s3cret" in one.body]
    assert "s3cret" not in caplog.text


async def test_no_link_and_no_other_site_acknowledges(site: Site, ada: httpx.AsyncClient) -> None:
    await call(ada, "POST", "/alerts/rules", 201, RULE)
    await site.store(HostLost(host="h1", silent_seconds=6))
    alerts = site.console.alerts
    await eventually(lambda: any(one.alert.rule == "lost" for one in alerts.active()), 5, "alert")
    key = next(one.alert.key for one in alerts.active() if one.alert.rule == "lost")
    for path in (f"/alerts/{key}/acknowledge", f"/api/v1/alerts/{key}/acknowledge"):
        assert (await ada.get(path)).status_code in (404, 405)
    del ada.headers["authorization"]  # which no other site can send
    for site_of in ("cross-site", "same-site", "none"):
        headers = {"sec-fetch-site": site_of, "origin": "https://evil.example"}
        answer = await ada.post(f"/alerts/{key}/acknowledge", headers=headers)
        assert answer.status_code in (401, 403)
    assert not alerts.book.acts
    shown = alerts.one(key)
    assert shown is not None
    assert shown.alert.acknowledged_by == ""
