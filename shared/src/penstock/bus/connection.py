"""One connection to the broker: made and kept, and JetStream's API over it."""

from __future__ import annotations

import json
import logging
import ssl
from contextlib import suppress
from typing import Any

import nats.errors

from penstock.bus import access, ending, streams
from penstock.bus.clock import BrokerClock
from penstock.bus.protocol import BusRefused, BusUnavailable, Outgoing
from penstock.bus.publishing import LEADERLESS, Publisher
from penstock.bus.pull import Inbox
from penstock.bus.wire import NotPrivate, NotTheBroker, WireClient, frame
from penstock.config import Settings
from penstock.events.subjects import Subjects

log = logging.getLogger("penstock.bus")


class Connection:
    """Kept until it is closed; reconnects whenever the broker is back.

    Attributes:
        has_account: whether it has a key, which permits what the key's role does.
        trouble: why a broker that answers cannot be used yet.
        is_refused: a broker answers, and refuses the credentials.
        violations: how many requests the broker refused to this key.
    """

    def __init__(self, settings: Settings) -> None:
        self.subjects = Subjects(settings.prefix)
        self._settings = settings
        self._client = WireClient()
        self._client.own_prefixes = streams.names(settings, self.subjects)
        self._client.broker_user = settings.nats.broker_user
        self.clock = BrokerClock()
        self._inboxes: set[Inbox] = set()
        self._may_not_make = False
        self._has_jetstream = False  # until it has answered
        self.trouble = ""
        self.is_refused = False
        self.violations = 0
        self.has_account = bool(settings.nats.nkey_file or settings.nats.credentials_file)
        self._timeout = settings.nats.request_timeout_seconds
        self._refusals = access.Refusals(settings.nats.nkey_file)
        self._publisher = Publisher(self._client, self._timeout, self._refusals)

    async def open(self, name: str) -> None:
        nats_settings = self._settings.nats
        await self._client.connect(
            name=name,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,
            connect_timeout=2,
            ping_interval=10,
            max_outstanding_pings=2,
            pending_size=64 * 1024 * 1024,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            **access.options(
                nats_settings.url,
                nkey_file=nats_settings.nkey_file,
                credentials_file=nats_settings.credentials_file,
                user=nats_settings.user,
                password=nats_settings.password,
                ca_file=nats_settings.ca_file,
            ),
        )
        await self._publisher.open()

    async def close(self) -> None:
        with suppress(Exception):
            if self._client.is_connected:
                await self._client.flush(timeout=1)
        with suppress(Exception):
            await self._client.close()
        if reconnecting := self._client._reconnection_task:
            await ending.end(reconnecting)

    async def signal(self, subject: str, body: bytes = b"") -> None:
        with suppress(nats.errors.Error):
            await self._client.send(frame(Outgoing(subject, body), b""))

    def now(self) -> float:
        return self.clock.now()

    @property
    def connected(self) -> bool:
        return bool(self._client.is_connected)

    @property
    def server_version(self) -> str:
        return str(self._client._server_info.get("version", ""))

    async def _api(self, verb: str, body: Any = None, *, fail: bool = True) -> dict[str, Any]:
        sent_at, subject = self.clock.monotonic(), f"$JS.API.{verb}"
        raw = json.dumps(body).encode() if body is not None else b""
        asking = self._client.request(subject, raw, timeout=self._timeout)
        try:
            message = await self._refusals.watch([subject], asking)
        except nats.errors.NoRespondersError:
            if self._client.clustered:
                raise BusUnavailable(f"no server of the cluster answers {verb}") from None
            if self._has_jetstream:
                raise BusUnavailable(f"the broker did not answer {verb}: it ends") from None
            raise BusRefused("the broker runs without JetStream; start it with -js") from None
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise BusUnavailable(f"the broker did not answer {verb}: {error!r}") from error
        self._has_jetstream = True
        answer: dict[str, Any] = json.loads(message.data)
        self.clock.read(answer, sent_at, self.clock.monotonic())
        refusal = answer.get("error") or {}
        if refusal.get("err_code") in LEADERLESS:
            raise BusUnavailable(f"{verb}: {refusal.get('description')}")
        if fail and refusal:
            raise BusRefused(f"{verb}: {refusal.get('description')}")
        return answer

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, (ssl.SSLError, NotPrivate)):
            self.trouble = access.tls_failure(error)
        if isinstance(error, NotTheBroker):
            if self.trouble != str(error):  # one line, however often it is tried
                log.warning("%s", error)
            self.trouble = str(error)
        text = str(error).lower()  # nats-py has made it small already
        if "authorization violation" in text:
            self.trouble, self.is_refused = access.refused_credentials(self._settings.nats), True
        if "permissions violation" not in text:
            return log.debug("nats: %s", error)
        subject = self._refusals.fail_requests(text)
        self._publisher.refuse(subject)
        if ".stream.create." in text:
            self._may_not_make = True
            return log.debug("streams are another role's to make")
        if ".stream.update." in text:
            return log.debug("this key may not update streams")
        self.violations += 1
        level = logging.DEBUG if self._refusals.is_awaited(subject) else logging.WARNING
        return log.log(level, "the broker refused: %s", error)

    async def _on_disconnected(self) -> None:
        if not self._client.is_closed:
            log.warning("lost the broker; reconnecting")

    async def _on_reconnected(self) -> None:
        log.warning("broker is back")
        for inbox in self._inboxes:
            inbox.reconnected()
