"""Credentials, the check that a broker is the right one, and requests that it refuses."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import ssl
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from penstock.bus import nkeys
from penstock.bus.protocol import BusRefused
from penstock.config import ConfigError
from penstock.config.settings import Nats as NatsSettings

T = TypeVar("T")

_REFUSED_PUBLISH = re.compile(r'publish to "([^"]+)"', re.IGNORECASE)

TLS_FIRST = "; TLS must come before all else there (handshake_first, as in deploy/nats/nats.conf)"
_NOT_YET_VALID, _EXPIRED = 9, 10
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""


class NotPermitted(BusRefused):
    """The broker reported a violation of permissions."""


class Refusals:
    """Requests under way, by subject: each fails at once when the broker refuses its subject.

    NATS does not reply to an unauthorised request; it reports a permissions violation by itself.

    Args:
        nkey_file: the key of this connection, for the text of the error.
    """

    def __init__(self, nkey_file: str) -> None:
        self._nkey_file = nkey_file
        self._waiting: dict[str, set[asyncio.Event]] = {}

    async def watch(self, subjects: Collection[str], work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` gives, which publishes to ``subjects``.

        Raises:
            NotPermitted: the broker refused one of them.
        """
        refused = asyncio.Event()
        names = {subject.lower() for subject in subjects}  # as nats-py reports them
        for name in names:
            self._waiting.setdefault(name, set()).add(refused)
        try:
            return await unless_refused(refused, work)
        except NotPermitted:
            raise self.error(", ".join(sorted(subjects))) from None
        finally:
            for name in names:
                self._waiting[name].discard(refused)
                if not self._waiting[name]:
                    del self._waiting[name]

    def fail_requests(self, text: str) -> str:
        """Fails the requests to the subject that a violation names; returns it, else nothing."""
        if not (refused := _REFUSED_PUBLISH.search(text)):
            return ""
        for event in self._waiting.get(refused[1].lower(), ()):
            event.set()
        return refused[1].lower()

    def is_awaited(self, subject: str) -> bool:
        """Whether a caller gets the error of a refused publish to ``subject``."""
        return subject in self._waiting

    def error(self, subject: str) -> NotPermitted:
        """The error for a refused publish to ``subject``."""
        key = f"the key {self._nkey_file}" if self._nkey_file else "this user"
        return NotPermitted(
            f"{key} may not publish to {subject} (permissions violation); set nats.nkey_file to "
            "the key of a role that may: the operator's for commands, for a service its own"
        )


def tls_failure(error: Exception) -> str:
    """Why no secure connection came about, with what to check first."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return f"{error}{TLS_FIRST}"
    if error.verify_code in {_NOT_YET_VALID, _EXPIRED}:
        return f"{error}; compare this host's clock with the certificate's dates"
    return str(error)


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
    url: str,
    *,
    nkey_file: str = "",
    credentials_file: str = "",
    token: str = "",
    user: str = "",
    password: str = "",
    ca_file: str = "",
) -> dict[str, Any]:
    """What nats-py needs to connect; of several credentials the first counts.

    TLS is demanded, not offered: nats-py alone would go on in clear text when a server's first
    line, which anybody on the way can write, does not ask for TLS. The TLS handshake therefore
    comes before anything else (``handshake_first`` in the server's configuration).

    Args:
        url: comma-separated servers.
        nkey_file: file with the seed of an NKey.
        credentials_file: a NATS `.creds` file.
        token: a token of the server's configuration.
        user: a user of the server's configuration.
        password: that user's password.
        ca_file: certificate authority; TLS is used where it is given or a server is ``tls://``.

    Raises:
        ConfigError: ``url`` names no server.
        ExtraMissing: a key is used, and the library for keys is not installed.
        BusRefused: no seed in that file, a server that is no NATS address, or credentials for
            another machine without TLS.
        OSError: no certificates in ``ca_file``.
    """
    names = servers(url)
    addresses = [_address(name) for name in names]
    identity = _identity(nkey_file, credentials_file, token, user, password)
    connection: dict[str, Any] = {"servers": names, **identity}
    if ca_file or any(address.scheme == "tls" for address in addresses):
        import ssl  # noqa: PLC0415 - only where TLS is used

        connection["tls"] = ssl.create_default_context(cafile=ca_file or None)
        connection["tls_handshake_first"] = True
        logging.getLogger("asyncio").addFilter(_is_no_end_of_tls)
        return connection
    for address in addresses:
        has_identity = identity or address.username is not None
        if has_identity and not is_loopback(address.hostname or ""):
            raise BusRefused(
                f"nats.url names the server {address.hostname} and credentials are set, but not "
                "nats.ca_file: any machine on the way could read and use the connection; set "
                "nats.ca_file (or tls://, where the system knows the authority). Without TLS, "
                "credentials go to servers on loopback only"
            )
    return connection


def is_loopback(host: str) -> bool:
    """Whether ``host``, a name or an address, is this machine by its name alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _identity(
    nkey_file: str, credentials_file: str, token: str, user: str, password: str
) -> dict[str, Any]:
    if nkey_file:
        return nkeys.options(nkey_file)
    if credentials_file:
        nkeys.check_installed("nats.credentials_file")
        return {"user_credentials": credentials_file}
    if token:
        return {"token": token}
    return {"user": user, "password": password} if user else {}


def _address(server: str) -> SplitResult:
    """Raises BusRefused: the text is no address of a NATS server; it may hold a password."""
    try:
        address = urlsplit(server if "://" in server else f"nats://{server}")
        valid = address.scheme in ("nats", "tls") and address.hostname and address.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise BusRefused(
            f"nats.url: found {server.rpartition('@')[2][:80]!r}, expected nats://HOST:PORT or "
            "tls://HOST:PORT, several separated by commas"
        )
    return address


def refused_credentials(reach: NatsSettings) -> str:
    """What a broker that refuses our credentials was shown, and what to do."""
    if reach.nkey_file:
        shown = f"it does not know the key in nats.nkey_file ({reach.nkey_file})"
    elif reach.credentials_file:
        shown = f"it does not know nats.credentials_file ({reach.credentials_file})"
    elif reach.user:
        shown = "nats.user or nats.password is wrong"
    else:
        shown = "no nats.nkey_file is set"
    return (
        f"the broker refuses these credentials (authorization violation): {shown}; set "
        "nats.nkey_file to a seed that the broker knows, as 'penstock deploy keys' makes them "
        "(a broker of 'penstock up' is for its own user, from the folder that it runs in)"
    )


async def unless_refused(refused: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is begun in any case and cancelled once ``refused`` is set.

    NATS does not reply to an unauthorised request; it reports a permissions violation by itself.

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
    """nats-py does not mark its reader as one of TLS, so asyncio logs a warning at each end."""
    return "eof_received() has no effect when using ssl" not in str(record.msg)
