"""What a worker and its host's Spark supervisor send each other, over ``DIR/spark.sock``.

A worker connects and holds that connection as its lease on the host's Spark Connect server::

    worker  ─► (connects)            supervisor ─► {"remote": "sc://…", …} or {"error": "…"}
            ─► again                            ─► the same, for the next job
            ─► rest                             (nothing; the connection is kept, but not counted)
            ─► session ID                       (nothing; the session that it works in)
            ─► bye                              (nothing; it closed its session itself)

A connection that ends without ``bye`` is that of a worker that died.
"""

from __future__ import annotations

import msgspec

SOCKET = "spark.sock"
"""Its name in the host's run folder."""
AGAIN, REST, BYE = b"again", b"rest", b"bye"
_SESSION = b"session "
_MAX_SESSION_ID = 72


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """To a worker that connects or asks again: the server's address, or why there is none.

    Attributes:
        remote: Spark Connect address, with token. Never logged.
        ui: address of the server's web UI; empty where that does not run.
    """

    remote: str = ""
    ui: str = ""
    error: str = ""


def line(message: bytes | Answer) -> bytes:
    """The message as it is sent."""
    return (message if isinstance(message, bytes) else msgspec.json.encode(message)) + b"\n"


def session(session_id: str) -> bytes:
    """The request that names the session in which a worker works."""
    return _SESSION + session_id.encode()


def session_of(request: bytes) -> str:
    """The session that a request names; empty for any other request."""
    if not request.startswith(_SESSION):
        return ""
    name = request.removeprefix(_SESSION)[:_MAX_SESSION_ID]
    return name.decode("ascii", "replace")


read_answer = msgspec.json.Decoder(Answer).decode
"""The answer of one line. Raises msgspec.DecodeError."""
