"""Authentication by NKey: an Ed25519 key pair in the encoding of NATS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.bus.protocol import BusRefused
from penstock.config.extras import needed

IMPORT_PREFIX = "heard"
"""First token of subjects that an account imports from those of other keys."""
MAX_SEED_BYTES = 200


def options(seed_file: str) -> dict[str, Any]:
    """What nats-py needs to connect with a seed.

    Raises:
        BusRefused: no such file, or no seed in it.
        ExtraMissing: the library for keys is not installed.
    """
    check_installed("nats.nkey_file")
    import nkeys  # type: ignore[import-untyped]  # noqa: PLC0415 - only where they are used

    try:
        with Path(seed_file).open("rb") as file:
            seed = file.read(MAX_SEED_BYTES).strip()
        pair = nkeys.from_seed(bytearray(seed))
        public = pair.public_key.decode()
    except OSError as error:
        raise BusRefused(f"nats.nkey_file {seed_file} cannot be read: {error.strerror}") from None
    except Exception:  # nkeys raises several kinds, some with the seed in their text
        raise BusRefused(
            f"nats.nkey_file {seed_file} holds no NKey seed (SU…); 'penstock deploy keys' makes one"
        ) from None
    return {"nkeys_seed_str": seed.decode(), "inbox_prefix": inbox(public)}


def check_installed(setting: str) -> None:
    """Raises ExtraMissing: the library that signs with NKeys is not installed.

    Args:
        setting: that asks for it.
    """
    with needed("keys", setting):
        import nkeys  # noqa: F401, PLC0415


def inbox(public_key: str) -> str:
    """Where the broker's answers to this user go: no other user may subscribe to it."""
    return f"_INBOX.{public_key}"
