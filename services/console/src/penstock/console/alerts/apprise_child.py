"""A process of its own that sends one message by Apprise, and is killed when it takes too long.

``python -m penstock.console.alerts.apprise_child`` reads a JSON object with ``url``, ``title``,
``body`` and ``allowed`` from its input; exit code 0: sent. Each connection is checked when made.
An address of Apprise can name files (templates, keys, attachments) and programs: none is read, no
file is written and no program is run.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from penstock.console.alerts.addresses import check_address

_SENT, _REFUSED, _FAILED = 0, 3, 4
REASONS = {
    _REFUSED: "the address is not one that Apprise can use",
    _FAILED: "the service did not take the message",
}
"""By exit code."""
_CERTIFICATES_AND_ZONES = ("/etc/ssl/", "/usr/share/zoneinfo/", "/usr/share/ca-certificates/")
_SYSTEM_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/mime.types", "/etc/services", os.devnull)
_PROGRAMS = ("subprocess.", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "os.fork")
_PROGRAM_CALLS = ("os.system", "pty.spawn")


def guard(allowed: list[str]) -> None:
    """Has every connection, file and program of this process checked, for good."""
    connect = socket.socket.connect

    def checked(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            for one in socket.getaddrinfo(address[0], address[1], self.family):
                check_address(str(one[4][0]), allowed)
                address = (one[4][0], *address[1:])
                break
        connect(self, address)

    socket.socket.connect = checked  # type: ignore[method-assign,assignment]
    sys.addaudithook(_hook(allowed))


def _hook(allowed: list[str]) -> Callable[[str, tuple[Any, ...]], None]:
    code = tuple({os.path.realpath(one) + os.sep for one in (*sys.path, sys.base_prefix) if one})

    def check(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            _check_file(args[0], args[2], code)
        elif event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            _check_receiver(args[0], args[1], allowed)
        elif event.startswith(_PROGRAMS) or event in _PROGRAM_CALLS:
            raise PermissionError("no programs are run to send a message")

    return check


def _check_file(path: Any, flags: int, code: tuple[str, ...]) -> None:
    if isinstance(path, int):
        return
    name = os.path.realpath(os.fsdecode(path))
    is_known = name.startswith((*code, *_CERTIFICATES_AND_ZONES)) or name in _SYSTEM_FILES
    if not is_known or (flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and name != os.devnull):
        raise PermissionError("no files are read or written to send a message")


def _check_receiver(used: socket.socket, address: Any, allowed: list[str]) -> None:
    if used.family not in (socket.AF_INET, socket.AF_INET6):
        raise PermissionError("no connections to sockets of this machine")
    if address is not None:
        try:
            check_address(str(address[0]), allowed)
        except ValueError:
            raise PermissionError("a name is resolved and checked before it is used") from None


def main() -> int:
    """Sends what the input says."""
    order = json.load(sys.stdin)
    guard(order["allowed"])
    from apprise import Apprise, NotifyFormat  # noqa: PLC0415 - after the guard
    from apprise.logger import logger  # noqa: PLC0415

    logger.disabled = True
    sender = Apprise()
    if not sender.add(order["url"]):
        return _REFUSED
    # Without its format, text of jobs would be taken as it is into the HTML of a mail.
    is_sent = sender.notify(order["body"], title=order["title"], body_format=NotifyFormat.TEXT)
    return _SENT if is_sent else _FAILED


if __name__ == "__main__":
    sys.exit(main())
