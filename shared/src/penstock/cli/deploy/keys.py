"""The files with which broker, services and Spark know each other."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import nkeys  # type: ignore[import-untyped]

from penstock.cli.deploy import certificates
from penstock.cli.deploy.accounts import Key, configuration
from penstock.cli.deploy.roles import ROLES
from penstock.cli.errors import Failed

SEED_BYTES = 32


def write(folder: Path, prefix: str, names: Sequence[str], now: datetime, days: int) -> list[Path]:
    """Makes ``folder`` with a folder for the broker, one for Spark and one for each role.

    Raises:
        Failed: ``folder`` exists: keys in use are never overwritten.
    """
    try:
        folder.mkdir(parents=True, mode=0o755)
    except FileExistsError:
        raise Failed(
            f"{folder} exists already; keys in use are not overwritten: move it away first"
        ) from None
    made = list(_files(prefix, names, now, days))
    return [_put(folder / name, content) for name, content in made]


def _files(
    prefix: str, names: Sequence[str], now: datetime, days: int
) -> Iterator[tuple[str, bytes]]:
    tls = certificates.make(names, now, days)
    keys = []
    for name in ROLES:
        seed, public = _pair()
        keys.append(Key(name=name, role=name, public=public, prefix=prefix))
        yield f"{name}/nkey.seed", seed
        yield f"{name}/ca.pem", tls.authority
    cluster, connect = (secrets.token_urlsafe(SEED_BYTES).encode() for _ in range(2))
    yield "spark/cluster.secret", cluster
    yield "spark/connect.token", connect
    yield "worker/spark.token", connect
    yield "nats/ca.pem", tls.authority
    yield "nats/server.pem", tls.certificate
    yield "nats/server.key", tls.key
    yield "nats/accounts.conf", configuration(keys).encode()


def _pair() -> tuple[bytes, str]:
    """Seed and public key of a new user."""
    seed = bytes(nkeys.encode_seed(secrets.token_bytes(SEED_BYTES), nkeys.PREFIX_BYTE_USER))
    return seed, nkeys.from_seed(bytearray(seed)).public_key.decode()


def _put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(content)
    return path
