"""Where the broker of `penstock up` listens: the same address at each start in a folder."""

from __future__ import annotations

import errno
import re
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import msgspec

from penstock.bus.access import is_loopback
from penstock.bus.peers import new_token, owner_in
from penstock.bus.wire import NotTheBroker, check_broker_user
from penstock.cli.errors import Refused
from penstock.cli.up.state import write_private
from penstock.config import Settings
from penstock.config.masking import masked
from penstock.config.settings import Nats
from penstock.runtime.local_broker import FOLDER, read_private
from penstock.runtime.paths import check_port

_FILE = "broker.json"
_PROBE_SECONDS = 2.0
_DEFAULT_PORT = 4222
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,200}")


class Place(msgspec.Struct, frozen=True):
    """Where a broker listens on loopback.

    Attributes:
        port: 0 for any free one.
        token: clients must show it.
    """

    port: int
    token: str


def place(settings: Settings, port: int | None, folder: Path = FOLDER) -> Place | None:
    """Where `penstock up` starts a broker; None where the settings name one that runs.

    Without ``nats.url`` its port is that of the option, else that of the last start in this folder,
    else any free one. A ``nats.url`` on this machine at which no server listens names the port.

    Args:
        settings: of this installation.
        port: of the option; None where it is not given.
        folder: holds port and token of the last start.

    Raises:
        Refused: the port is taken, no server listens at ``nats.url``, or another user's does.
    """
    last = _last(folder)
    url = settings.nats.url.strip(" ,")
    if not url:
        return Place(_usable(port, last.port), last.token)
    if port is not None:
        raise Refused(
            f"--port is for a broker that 'penstock up' starts, but nats.url names {masked(url)}; "
            "leave one of them out"
        )
    servers = [_split(server) for server in url.split(",")]
    if any(server is None or _listens(server, settings.nats) for server in servers):
        return None  # what is no address is refused with the words of the connection
    if own := _own(servers, settings.nats, last.token):
        return own
    raise Refused(
        f"no server listens at nats.url, {masked(url)}: start it, or leave nats.url out, and "
        "'penstock up' starts one"
    )


def remember(broker: Place, folder: Path = FOLDER) -> None:
    """Keeps port and token for the next start, for this user only."""
    write_private(folder / _FILE, msgspec.json.encode(broker).decode())


def _last(folder: Path) -> Place:
    try:
        return msgspec.json.decode(read_private(folder / _FILE), type=Place)
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError):  # none yet, or not trusted
        return Place(0, new_token())


def _usable(port: int | None, last: int) -> int:
    """The port to listen at. Raises Refused: it is taken."""
    chosen = last if port is None else port
    if not chosen:
        return 0
    try:
        check_port(chosen)
    except OSError as error:
        # checked before the broker does, whose log has fifteen lines on it
        whose = ", the one of the last start in this folder," if port is None else ""
        taken = error.errno == errno.EADDRINUSE
        why = "is taken" if taken else f"cannot be used ({error.strerror})"
        raise Refused(
            f"port {chosen}{whose} {why}; choose another with --port"
            + (" (0: any free one)" if port is None else "")
        ) from error
    return chosen


def _own(servers: list[SplitResult | None], nats: Nats, token: str) -> Place | None:
    """A broker at the single address on this machine that ``nats.url`` names, if it is one."""
    server = servers[0]
    has_credentials = nats.nkey_file or nats.credentials_file or nats.user or nats.ca_file
    if server is None or len(servers) > 1 or server.scheme != "nats" or has_credentials:
        return None
    if not is_loopback(server.hostname or "") or server.password is not None:
        return None
    if server.username and not _TOKEN.fullmatch(server.username):
        return None
    return Place(server.port or _DEFAULT_PORT, server.username or token)


def _split(server: str) -> SplitResult | None:
    server = server.strip()
    address = urlsplit(server if "://" in server else f"nats://{server}")
    try:
        return address if address.hostname and address.port != 0 else None
    except ValueError:  # a port beyond 65535
        return None


def _listens(server: SplitResult, nats: Nats) -> bool:
    """Whether a server listens there that may be used. Raises Refused: it is another user's."""
    address = (server.hostname, server.port or _DEFAULT_PORT)
    try:
        with socket.create_connection(address, _PROBE_SECONDS) as connection:
            peer, own = connection.getpeername(), connection.getsockname()
            if server.scheme != "tls" and not nats.ca_file and is_loopback(peer[0]):
                connection.settimeout(_PROBE_SECONDS)
                with suppress(TimeoutError):
                    connection.recv(1)  # until its process has accepted, its user is not known
                check_broker_user(peer, own, owner_in(server.username or ""), nats.broker_user)
            return True
    except NotTheBroker as error:
        raise Refused(str(error).removeprefix("nats: ")) from None
    except OSError:
        return False
