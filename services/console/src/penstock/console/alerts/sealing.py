"""Secrets of channels: sealed before they are stored, opened only to send."""

from __future__ import annotations

import base64
import os
import secrets as random
from collections.abc import Iterable
from pathlib import Path

import msgspec

from penstock.console.alerts.webhook import SendFailed
from penstock.console.core.alerts.channels import Channel, Secrets
from penstock.jobs.errors import MissingKey, Undecryptable
from penstock.jobs.payloads.encryption import About, KeyRing, load

KEY_FILE = "alerts.key"


class Sealing:
    """Seals with the installation's key (``encryption.key_file``), else with one of this console.

    Args:
        key_file: of the settings; empty where there is none.
        folder: of the console's files, where its own key is made.

    Attributes:
        ring: the keys, for what else the console keeps sealed.
    """

    def __init__(self, key_file: str, folder: Path) -> None:
        self.ring = load(key_file) or _own(folder)
        self._opened: set[tuple[str, str]] = set()

    def seal(self, channel: str, secrets: Secrets) -> str:
        """Text that only a holder of the key can open."""
        box = self.ring.seal(msgspec.json.encode(secrets), _about(channel))
        return base64.b64encode(box).decode()

    def open(self, channel: Channel) -> Secrets:
        """The secrets of a channel.

        Raises:
            SendFailed: this console has not the key.
        """
        if not channel.sealed:
            return Secrets()
        try:
            box = self.ring.open(base64.b64decode(channel.sealed), _about(channel.id))
            return msgspec.json.decode(box, type=Secrets)
        except (MissingKey, Undecryptable, ValueError) as error:
            raise SendFailed(
                "the channel's address cannot be opened by this console: set encryption.key_file "
                "to the same keys for all consoles, or enter the address again"
            ) from error

    def unopened(self, channels: Iterable[Channel]) -> list[str]:
        """Ids of the channels whose secrets this console cannot open, by name."""
        return sorted(channel.id for channel in channels if not self._can_open(channel))

    def _can_open(self, channel: Channel) -> bool:
        key = (channel.id, channel.sealed)
        if key not in self._opened:
            try:
                self.open(channel)
            except SendFailed:
                return False
            self._opened.add(key)
        return True


def _about(channel: str) -> About:
    return About(purpose="channel", job=channel, function="", queue="")


def _own(folder: Path) -> KeyRing:
    path = folder / KEY_FILE
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return load(str(path))
    with os.fdopen(handle, "wb") as file:
        key = base64.b64encode(random.token_bytes(32)).decode()
        file.write(f"console {key}\n".encode())
    return load(str(path))
