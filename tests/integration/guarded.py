"""A broker as it is deployed: the shipped configuration, with keys and certificates of a test."""

from __future__ import annotations

import re
import signal
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus import nkeys
from penstock.cli.deploy.keys import write
from penstock.config import Settings
from penstock.runtime.broker import Broker
from penstock.runtime.paths import LOOPBACK

_RELOADED = "Reloaded server configuration"
SHIPPED = Path(__file__).parents[2] / "deploy/nats/nats.conf"


class GuardedBroker(Broker):
    """`deploy/nats/nats.conf` with other paths and ports.

    Attributes:
        secrets: what `penstock deploy keys` made.
    """

    def __init__(
        self,
        folder: Path,
        prefix: str = "penstock",
        store: Path | None = None,
        address: str = LOOPBACK,
    ) -> None:
        super().__init__(store, address=address)
        self.secrets = folder / "secrets"
        self._ports = (-1, -1)
        write(self.secrets, prefix, [address], datetime.now(UTC), 2)

    @property
    def log(self) -> str:
        return (self._folder / "nats.log").read_text("utf-8")

    def violations(self) -> list[str]:
        """Role and subject of what was refused; asking for streams too early is none."""
        roles = {
            nkeys.options(str(seed))["inbox_prefix"].removeprefix("_INBOX."): seed.parent.name
            for seed in self.secrets.glob("*/nkey.seed")
        }
        found = re.findall(r'nkey:(\w+)" - (\w+) Violation - Subject "([^"]+)"', self.log)
        return [
            f"{roles[key]}: {verb} {subject}"
            for key, verb, subject in found
            if "STREAM.CREATE" not in subject
        ]

    def start(self) -> None:
        self._ports = (self._port or -1, self._monitor or -1)  # a reload must not change them
        super().start()

    async def reload(self) -> None:
        """Has the server read its keys again, and returns when it has.

        Twice, as `penstock deploy key` says: nats-server 2.15.1 links a new account to the
        account with the streams only at the reload after the one that made it (measured).
        """
        assert self.child
        (self._folder / "nats.conf").write_text(self._config(), "utf-8")
        for _ in range(2):
            count = self.log.count(_RELOADED)
            self.child.signal(signal.SIGHUP)
            try:
                await eventually(lambda: self.log.count(_RELOADED) > count, 10)  # noqa: B023
            except AssertionError:
                raise AssertionError(f"no reload: {self.log[-600:]}") from None

    def settings(self, make: MakeSettings, role: str, **tables: Any) -> Settings:
        keys = {"nkey_file": f"{self.secrets}/{role}/nkey.seed"}
        nats = {"url": self.url, "ca_file": f"{self.secrets}/{role}/ca.pem", **keys}
        return make(nats={**nats, **tables.pop("nats", {})}, **tables)

    def _config(self) -> str:
        super()._config()
        secrets = self.secrets / "nats"
        text = SHIPPED.read_text("utf-8")
        for shipped, ours in (
            ("$NATS_NAME", "guarded"),
            ("$NATS_MAX_STORE", "8GB"),
            ("port: 4222", f"host: {self._address}\nport: {self._port or -1}"),
            ("127.0.0.1:8222", f"127.0.0.1:{self._ports[1]}"),
            ('"/data"', f'"{self._store or self._folder / "store"}"'),
            ('include "secrets/accounts.conf"', (secrets / "accounts.conf").read_text("utf-8")),
            ("/etc/nats/secrets", str(secrets)),
        ):
            assert shipped in text, f"{SHIPPED} no longer holds {shipped}"
            text = text.replace(shipped, ours)
        return f'ports_file_dir: "{self._folder / "ports"}"\n{text}'


async def join(broker: GuardedBroker, role: str, errors: list[str] | None = None) -> Client:
    """A plain connection as ``role``; what the broker refuses comes to ``errors``."""

    async def refused(error: Exception) -> None:
        if errors is not None:
            errors.append(str(error).lower())

    return await nats.connect(
        broker.url,
        tls=ssl.create_default_context(cafile=f"{broker.secrets}/{role}/ca.pem"),
        tls_handshake_first=True,
        allow_reconnect=False,
        error_cb=refused,
        **nkeys.options(f"{broker.secrets}/{role}/nkey.seed"),
    )
