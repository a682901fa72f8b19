"""Logins that have begun: each is kept in a cookie of its browser, sealed, and ends once.

The server keeps nothing of a login that has begun, so a flood of them takes no memory and pushes
out nothing. Only those that came back are remembered, until they would have expired anyway.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections import OrderedDict

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from penstock.console.access.oidc.refusals import LoginRefused

SECONDS = 600
"""From the click on the button to the way back, with a password and a second factor between."""
_MOST_USED, _LONGEST_COOKIE = 100_000, 8_000
_AGAIN = "This login has expired, was used, or began in another browser. Log in again."


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A login that has begun.

    Attributes:
        state: comes back in the address; binds the answer to this browser.
        nonce: comes back in the ID token; binds the token to this login.
        verifier: of PKCE: proves to the provider that the code was asked for here.
        next: the path to go to afterwards.
        began_at: POSIX seconds.
        elevates: id of the session whose person proves again who it is; empty for a login.
    """

    state: str
    nonce: str
    verifier: str
    next: str
    began_at: float
    elevates: str = ""

    @property
    def challenge(self) -> str:
        """PKCE, method S256."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Attempts:
    """Seals and opens them with a key of this process."""

    def __init__(self) -> None:
        self._box = Fernet(Fernet.generate_key())
        self._used: OrderedDict[str, float] = OrderedDict()

    def begin(self, path: str, now: float, elevates: str = "") -> tuple[Attempt, str]:
        """A new one, and the value of its cookie.

        Args:
            path: to go to afterwards.
            now: POSIX seconds.
            elevates: id of a session.
        """
        attempt = Attempt(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            next=path,
            began_at=now,
            elevates=elevates,
        )
        sealed = self._box.encrypt_at_time(msgspec.json.encode(attempt), int(now))
        return attempt, sealed.decode()

    def end(self, cookie: str, state: str, now: float) -> Attempt:
        """The attempt that this answer belongs to; it cannot be ended again.

        Raises:
            LoginRefused: the browser began none, another one, too long ago, or it came back before.
        """
        if not cookie or len(cookie) > _LONGEST_COOKIE:
            raise LoginRefused(_AGAIN, "no login began in this browser")
        try:
            opened = self._box.decrypt_at_time(cookie.encode(), SECONDS, int(now))
            attempt = msgspec.json.decode(opened, type=Attempt)
        except (InvalidToken, msgspec.MsgspecError, ValueError):
            raise LoginRefused(_AGAIN, "the login expired, or began at another console") from None
        if not hmac.compare_digest(attempt.state.encode(), state.encode("utf-8", "replace")):
            raise LoginRefused(_AGAIN, "the answer belongs to another login (state)")
        while self._used and now - next(iter(self._used.values())) > SECONDS:
            self._used.popitem(last=False)
        if attempt.state in self._used:
            raise LoginRefused(_AGAIN, "the login came back before (state)")
        self._used[attempt.state] = now
        while len(self._used) > _MOST_USED:
            self._used.popitem(last=False)
        return attempt
