"""Who calls: bearer tokens, or on loopback alone anyone on this machine."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from penstock.config import ConfigError
from penstock.console.web.scopes import Scope

_MAX_TOKEN_LENGTH = 512


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a request.

    Attributes:
        name: as it stands in the audit log.
        account: for whom it acts, also through tokens that were made with tokens; empty: its name.
        kind: ``local``, ``token`` or ``session``.
        id: of the token or session; empty where it has none.
        role: of the person who is logged in.
        method: how that person logged in: ``password`` or ``oidc``.
        is_elevated: the person proved a moment ago who it is, and may do what is dangerous.
        pools: that it may act on; none for any.
        queues: that it may act on; none for any.
    """

    name: str
    scopes: frozenset[Scope]
    kind: str = "local"
    id: str = ""
    account: str = ""
    role: str = ""
    method: str = ""
    is_elevated: bool = False
    pools: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()

    @property
    def behind(self) -> str:
        """Counts as one caller: all tokens of a person, apart from the person's browsers."""
        return f"{self.kind} {self.account or self.name}"

    @property
    def person(self) -> str:
        """Counts as one for what is scarce: a person's browsers and tokens together."""
        return self.account or self.name

    @property
    def is_limited(self) -> bool:
        """Whether it may act on some pools or queues alone."""
        return bool(self.pools or self.queues)


class Authenticator(Protocol):
    """Finds out who sent a request."""

    def principal(self, headers: Mapping[str, str]) -> Principal | None:
        """The caller; None where the request carries no valid credentials."""
        ...


@runtime_checkable
class NotesUse(Protocol):
    """Keeps when tokens and sessions were last used."""

    def note_use(self, principal: Principal, address: str) -> None:
        """The caller of a request that is let in."""
        ...


class Local:
    """For a console on loopback without tokens: every caller may read."""

    def principal(self, headers: Mapping[str, str]) -> Principal | None:
        """The user of this machine."""
        del headers
        return Principal(name="local", scopes=frozenset({Scope.READ}))


class NoCredentials:
    """Lets no caller in without an account or a token of the console."""

    def principal(self, headers: Mapping[str, str]) -> Principal | None:
        """None."""
        del headers
        return None


class TokenFile:
    """Bearer tokens of a file, of which it holds only the SHA-256.

    Args:
        path: a line for each token: name, scopes separated by commas, SHA-256 in hexadecimal.

    Raises:
        ConfigError: the file cannot be read, or a line is not of that form.
    """

    def __init__(self, path: Path) -> None:
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"console.tokens_file: {path} cannot be read: {error}") from error
        self._principals = dict(
            _token(line, path, number)
            for number, line in enumerate(lines, 1)
            if line.strip() and not line.startswith("#")
        )

    def principal(self, headers: Mapping[str, str]) -> Principal | None:
        """The owner of the request's bearer token."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token or len(token) > _MAX_TOKEN_LENGTH:
            return None
        digest = hashlib.sha256(token.strip().encode()).hexdigest()
        return next(
            (
                principal
                for stored, principal in self._principals.items()
                if hmac.compare_digest(stored, digest)
            ),
            None,
        )


def _token(line: str, path: Path, number: int) -> tuple[str, Principal]:
    words = line.split()
    try:
        name, scopes, digest = words
        named = frozenset(Scope(scope) for scope in scopes.split(","))
        if len(bytes.fromhex(digest)) != hashlib.sha256().digest_size:
            raise ValueError("a SHA-256 has 64 hexadecimal digits")
    except ValueError as error:
        scope_names = ", ".join(scope for scope in Scope if scope is not Scope.PUBLIC)
        raise ConfigError(
            f"console.tokens_file: {path}, line {number}: expected NAME SCOPES SHA256, with scopes "
            f"of {scope_names} separated by commas: {error}"
        ) from error
    return digest.lower(), Principal(name=name, scopes=named, kind="token", id=name)
