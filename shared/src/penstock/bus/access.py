"""How a broker is told who we are, how we know that it is the right one, and what it refuses us."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.bus import nkeys
from penstock.config import ConfigError

T = TypeVar("T")


class NotPermitted(Exception):
    """The broker said that a permission was violated."""


def servers(url: str) -> list[str]:
    """The servers that a setting names, separated by commas.

    Raises:
        ConfigError: it names none. nats-py would look for a server in a loop that never yields to
            the event loop, so neither a timeout nor Ctrl-C could end it.
    """
    addresses = [address.strip() for address in url.split(",") if address.strip()]
    if not addresses:
        raise ConfigError(
            "no broker is known: nats.url is empty; start 'penstock up' in this folder or set "
            "nats.url (PENSTOCK_NATS__URL, --nats-url)"
        )
    return addresses


def options(
    *,
    nkey_file: str = "",
    credentials_file: str = "",
    token: str = "",
    user: str = "",
    password: str = "",
    ca_file: str = "",
) -> dict[str, Any]:
    """What nats-py needs for it; of several ways to name oneself the first counts.

    Args:
        nkey_file: seed of an NKey. credentials_file: a NATS `.creds` file.
        ca_file: certificate authority, turns TLS on.

    Raises:
        BusRefused: no seed in that file.
        OSError: no certificates in that one.
    """
    found: dict[str, Any] = {}
    if nkey_file:
        found = nkeys.options(nkey_file)
    elif credentials_file:
        found["user_credentials"] = credentials_file
    elif token:
        found["token"] = token
    elif user:
        found = {"user": user, "password": password}
    if ca_file:
        import ssl  # noqa: PLC0415 - only where TLS is used

        found["tls"] = ssl.create_default_context(cafile=ca_file)
        logging.getLogger("asyncio").addFilter(_is_no_end_of_tls)
    return found


async def unless_refused(refused: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` gives; it is begun in any case, and cancelled once ``refused`` is set.

    A request that one may not make is not answered: only that it was refused is told, beside.

    Raises:
        NotPermitted: it was set before ``work`` had ended.
    """
    doing, refusing = asyncio.ensure_future(work), asyncio.ensure_future(refused.wait())
    try:
        await asyncio.wait((doing, refusing), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
    finally:
        doing.cancel()
        refusing.cancel()
    raise NotPermitted


def _is_no_end_of_tls(record: logging.LogRecord) -> bool:
    """nats-py does not tell its reader of TLS, and asyncio grumbles about that at each end."""
    return "eof_received() has no effect when using ssl" not in str(record.msg)
