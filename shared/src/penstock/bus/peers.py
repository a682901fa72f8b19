"""Which user a process on this machine runs as that we are connected to."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import sys
from pathlib import Path

Address = tuple[str, int]

_TABLE = Path("/proc/net/tcp")
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


def user_of(peer: Address, own: Address) -> int | None:
    """The user that has the other end of an IPv4 connection on this machine.

    Linux shows the user of each socket. It cannot be another process' by now: the connection is
    made, and is that socket's until its end.

    Returns:
        None where the connection is not there: closed by its other end, or on another machine.

    Raises:
        OSError: the table cannot be read.
    """
    wanted = (_hexadecimal(peer), _hexadecimal(own), _ESTABLISHED)
    with _TABLE.open(encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if tuple(fields[1:4]) == wanted:
                return int(fields[7])
    return None


def _hexadecimal(address: Address) -> str:
    host, port = address
    packed = int.from_bytes(ipaddress.IPv4Address(host).packed, sys.byteorder)
    return f"{packed:08X}:{port:04X}"
