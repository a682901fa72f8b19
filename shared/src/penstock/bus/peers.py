"""Which user a process on this machine runs as that we are connected to."""

from __future__ import annotations

import ipaddress
import os
import pwd
import re
import secrets
import sys
from pathlib import Path

from penstock.config import ConfigError

Address = tuple[str, int]

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""A server of all addresses has IPv4 connections in the second one, as ``::ffff:127.0.0.1``."""
_ESTABLISHED = "01"
_TOKEN = re.compile(r"up-([0-9]{1,10})-[A-Za-z0-9_-]{43}")
_TOKEN_BYTES = 32


def new_token() -> str:
    """A token for a broker of this user, which names the user: see :func:`owner_in`."""
    return f"up-{os.getuid()}-{secrets.token_urlsafe(_TOKEN_BYTES)}"


def owner_in(token: str) -> int | None:
    """The user whose broker the token is for; None for a token of another form."""
    match = _TOKEN.fullmatch(token)
    return int(match[1]) if match else None


def user_number(name: str) -> int:
    """The number of a user of this machine that is given by name or number.

    Raises:
        ConfigError: there is no user of that name.
    """
    if name.isascii() and name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        raise ConfigError(
            f"nats.broker_user: this machine has no user {name!r}; expected the name or number of "
            "the user that runs the broker"
        ) from None


def user_of(peer: Address, own: Address) -> int | None:
    """The user that has the other end of a connection on this machine.

    Linux shows the user of each socket. It cannot be another process' by now: the connection is
    made, and is that socket's until its end. A connection that its process has not accepted yet
    has user 0, so read something first where root is trusted.

    Returns:
        None where the connection is not there: closed by its other end, or on another machine.

    Raises:
        OSError: the table cannot be read.
        ValueError: no addresses of IPv4 or IPv6.
    """
    wanted = {
        (peer_end, own_end, _ESTABLISHED)
        for peer_end, own_end in zip(_ends(peer), _ends(own), strict=False)
    }
    for path in _TABLES:
        if path is not _TABLES[0] and not path.exists():  # a kernel without IPv6
            continue
        with path.open(encoding="ascii") as table:
            for line in table:
                fields = line.split()
                if tuple(fields[1:4]) in wanted:
                    return int(fields[7])
    return None


def _ends(address: Address) -> list[str]:
    """An address as the tables write it: in both of them where it is one of IPv4."""
    host = ipaddress.ip_address(address[0].partition("%")[0])
    if isinstance(host, ipaddress.IPv6Address):
        return [_hexadecimal(host.packed, address[1])]
    mapped = ipaddress.IPv6Address(f"::ffff:{host}")
    return [_hexadecimal(host.packed, address[1]), _hexadecimal(mapped.packed, address[1])]


def _hexadecimal(packed: bytes, port: int) -> str:
    """Words of four bytes, each as this machine orders them."""
    words = [packed[start : start + 4] for start in range(0, len(packed), 4)]
    shown = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{shown}:{port:04X}"
