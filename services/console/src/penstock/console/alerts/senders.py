"""Sends a message to a channel, once and within a time limit."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from penstock.console.alerts.apprise_child import REASONS
from penstock.console.alerts.sealing import Sealing
from penstock.console.alerts.webhook import SendFailed, post
from penstock.console.core.alerts import messages
from penstock.console.core.alerts.channels import MAIL_SCHEMES, BadChannel, Channel, check
from penstock.console.core.alerts.states import Notification

log = logging.getLogger("penstock.console.alerts")

LIMIT_SECONDS = 10.0
_MOST_AT_ONCE = 4
"""Processes of Apprise."""


class Senders:
    """Sends to every kind of channel.

    Args:
        sealing: opens the secrets of channels.
        allowed: private networks that may be reached.
        address: of the console, for links in messages.
        limit_seconds: of one attempt.
    """

    def __init__(
        self,
        sealing: Sealing,
        allowed: Sequence[str] = (),
        address: str = "",
        limit_seconds: float = LIMIT_SECONDS,
    ) -> None:
        self.sealing, self._allowed, self._address = sealing, tuple(allowed), address
        self._limit_seconds = limit_seconds
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)

    async def send(self, channel: Channel, notification: Notification) -> None:
        """One attempt.

        Raises:
            SendFailed: the channel did not take it; the text holds no secrets.
        """
        if channel.kind == "log":
            log.warning("%s", f"{messages.title(notification)}\n{messages.body(notification)}")
            return
        secrets = self.sealing.open(channel)
        try:
            check(channel.kind, secrets)
        except BadChannel as error:
            raise SendFailed(str(error)) from error
        if channel.kind == "webhook":
            body = msgspec.json.encode(messages.payload(notification, self._address))
            await post(
                secrets.url,
                body,
                secrets.key,
                notification.id,
                int(time.time()),
                self._allowed,
                self._limit_seconds,
            )
        else:
            await self._by_apprise(secrets.url, notification)

    async def _by_apprise(self, url: str, notification: Notification) -> None:
        title, body = messages.title(notification), messages.body(notification, self._address)
        body = f"{body}\n\nMessage {notification.id}"  # by which people know a repetition
        if not url.lower().startswith(MAIL_SCHEMES):
            title, body = messages.without_mentions(title), messages.without_mentions(body)
        order = {"url": url, "title": title, "body": body, "allowed": list(self._allowed)}
        async with self._places:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-IB",
                "-m",
                "penstock.console.alerts.apprise_child",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"},
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(self._limit_seconds):
                    await child.communicate(msgspec.json.encode(order))
            except TimeoutError:
                raise SendFailed(f"no answer within {self._limit_seconds:g} s") from None
            finally:
                if child.returncode is None:
                    with suppress(ProcessLookupError):
                        child.kill()
                    await child.wait()
        if child.returncode:
            # The last lines of a library may hold the address, and so a password.
            reason = REASONS.get(child.returncode, f"the sender ended with {child.returncode}")
            raise SendFailed(reason)
