"""The files by which broker, services and Spark authenticate each other."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
import nkeys  # type: ignore[import-untyped]

from penstock.cli.deploy import certificates
from penstock.cli.deploy.accounts import Key, configuration
from penstock.cli.deploy.roles import ROLES
from penstock.cli.errors import Failed

SEED_BYTES = 32
_REGISTRY = "nats/keys.json"
"""Names, roles and public halves."""
_LIMITS = "nats/limits.json"
"""Bytes that the streams of an installation may take, by its prefix. Missing: none is limited."""
_LOCK = "nats/keys.lock"


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


def add(folder: Path, key: Key) -> list[Path]:
    """Makes a further key of an installation, and adds it to the broker's configuration.

    Args:
        folder: made by :func:`write`.
        key: without its public half.

    Raises:
        Failed: no such folder, or the name is taken.
    """
    with _locked(folder):
        keys = listed(folder)
        place = folder / (key.name if key.prefix == keys[0].prefix else f"{key.prefix}/{key.name}")
        if any((k.prefix, k.name) == (key.prefix, key.name) for k in keys) or place.exists():
            raise Failed(
                f"there is a key {key.name} already; revoke it first, or take another name"
            )
        seed, public = _pair()
        authority = (folder / "nats/ca.pem").read_bytes()
        place.parent.mkdir(mode=0o700, exist_ok=True)
        made = [_put(place / "nkey.seed", seed), _put(place / "ca.pem", authority)]
        _hand_over(folder, [place, *made])
        registered = [*keys, msgspec.structs.replace(key, public=public)]
        _register(folder, _configuration(registered, limits(folder)))
        return made


def revoke(folder: Path, prefix: str, name: str) -> Key:
    """Removes a key from the broker's configuration. Its files stay, without effect.

    Raises:
        Failed: no such folder or key.
    """
    with _locked(folder):
        keys = listed(folder)
        for key in keys:
            if (key.prefix, key.name) == (prefix, name):
                left = _configuration([other for other in keys if other != key], limits(folder))
                # the broker's own file first: the key is revoked even if the rest is cut off
                _register(folder, reversed([*left]))
                return key
    names = ", ".join(key.name for key in keys if key.prefix == prefix)
    raise Failed(f"{folder} has no key {name} of prefix {prefix}; it has {names or 'none'}")


def listed(folder: Path) -> list[Key]:
    """The keys in the broker's configuration.

    Raises:
        Failed: ``folder`` was not made by :func:`write`.
    """
    try:
        return msgspec.json.decode((folder / _REGISTRY).read_bytes(), type=list[Key])
    except (OSError, msgspec.MsgspecError) as error:
        raise Failed(
            f"{folder / _REGISTRY} cannot be read ({error}); expected a folder that 'penstock "
            "deploy keys' made"
        ) from None


def limit(folder: Path, prefix: str, max_bytes: int) -> None:
    """Bounds the storage that the streams of an installation may use.

    Args:
        folder: made by :func:`write`.
        prefix: of the installation.
        max_bytes: 0 for no bound.

    Raises:
        Failed: no such folder, or no key of that prefix.
    """
    with _locked(folder):
        keys = listed(folder)
        prefixes = {key.prefix for key in keys}
        if prefix not in prefixes:
            raise Failed(
                f"{folder} has no key of prefix {prefix}; it has keys of "
                f"{', '.join(sorted(prefixes))}: make one with 'penstock deploy key add' first"
            )
        bounds = {**limits(folder), prefix: max_bytes}
        bounds = {name: bound for name, bound in bounds.items() if bound}
        files = [(_LIMITS, msgspec.json.format(msgspec.json.encode(bounds)))]
        _register(folder, [*files, *_configuration(keys, bounds)])


def limits(folder: Path) -> dict[str, int]:
    """Bytes that the streams of an installation may take, by its prefix. Raises Failed."""
    path = folder / _LIMITS
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise Failed(
            f"{path} cannot be read ({error}); repair it, or remove it for no limits"
        ) from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks the keys of ``folder`` against other processes. Raises Failed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        lock = os.open(folder / _LOCK, flags, 0o600)
    except OSError as error:
        raise Failed(f"the keys of {folder} cannot be changed: {error}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _register(folder: Path, files: Iterable[tuple[str, bytes]]) -> None:
    for name, content in files:
        path = folder / name
        half = path.with_name(f"{path.name}.new")
        half.unlink(missing_ok=True)
        _put(half, content)
        _hand_over(folder, [half])
        half.replace(path)


def _hand_over(folder: Path, paths: Sequence[Path]) -> None:
    """Gives files to the owner of the broker's: root makes them for the user of the containers."""
    owner = (folder / "nats").stat()
    if os.getuid() != owner.st_uid:
        for path in paths:
            os.chown(path, owner.st_uid, owner.st_gid)


def _configuration(
    keys: Sequence[Key], bounds: Mapping[str, int] | None = None
) -> Iterator[tuple[str, bytes]]:
    yield _REGISTRY, msgspec.json.format(msgspec.json.encode(keys))
    yield "nats/accounts.conf", configuration(keys, bounds).encode()


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
    yield from _console(tls)
    yield from _configuration(keys)


def _console(tls: certificates.Certificates) -> Iterator[tuple[str, bytes]]:
    """Certificate of the console, and a first token, of which the console holds the hash alone."""
    place = "console-reader"
    yield f"{place}/server.pem", tls.console_certificate
    yield f"{place}/server.key", tls.console_key
    token = f"pst_{secrets.token_urlsafe(SEED_BYTES)}"
    digest = hashlib.sha256(token.encode()).hexdigest()
    yield f"{place}/tokens", f"first read {digest}\n".encode()
    yield "operator/console.token", token.encode()


def _pair() -> tuple[bytes, str]:
    """Seed and public key of a new user."""
    seed = bytes(nkeys.encode_seed(secrets.token_bytes(SEED_BYTES), nkeys.PREFIX_BYTE_USER))
    return seed, nkeys.from_seed(bytearray(seed)).public_key.decode()


def _put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(content)
    return path
