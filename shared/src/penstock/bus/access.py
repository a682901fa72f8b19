"""How a broker is told who we are, and how we know that it is the right one."""

from __future__ import annotations

import logging
from typing import Any

from penstock.bus import nkeys


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


def _is_no_end_of_tls(record: logging.LogRecord) -> bool:
    """nats-py does not tell its reader of TLS, and asyncio grumbles about that at each end."""
    return "eof_received() has no effect when using ssl" not in str(record.msg)
