"""Who a person is and what it may do here, by the claims of its ID token. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from penstock.config.oidc import Oidc
from penstock.console.access.oidc.id_tokens import Claims
from penstock.console.access.oidc.refusals import LoginRefused
from penstock.events.console import Role

MARK = "oidc:"
"""How names of such people begin; a colon stands in no name of an account."""
_RANKS: tuple[Role, ...] = ("viewer", "operator", "admin")
_MOST_VALUES, _LONGEST_NAME, _DIGITS = 10_000, 100, 16


def name_of(claims: Claims, settings: Oidc) -> str:
    """The name in the audit log, such as ``oidc:ada@example.org#9f86d081884c7d65``.

    People may change what the provider shows as their name. The hash, of issuer and subject, is
    always that of the same person, and of no other.
    """
    issuer, subject = str(claims["iss"]), str(claims["sub"])
    digest = hashlib.sha256(f"{issuer}\n{subject}".encode("utf-8", "replace")).hexdigest()
    shown = _value(claims, settings.name_claim)
    if not isinstance(shown, str) or not shown.strip():
        shown = subject
    if settings.name_claim == "email" and claims.get("email_verified") is False:
        shown = subject
    plain = "".join(one if one.isprintable() and one != "#" else "�" for one in shown.strip())
    return f"{MARK}{plain[:_LONGEST_NAME]}#{digest[:_DIGITS]}"


def role_of(claims: Claims, settings: Oidc) -> Role:
    """The highest role that the claims give.

    Raises:
        LoginRefused: they give none.
    """
    value = _value(claims, settings.roles_claim)
    values = value[:_MOST_VALUES] if isinstance(value, list) else [value]
    roles = settings.roles
    given = {roles[one] for one in values if isinstance(one, str) and one in roles}
    if not given:
        raise LoginRefused(
            "You are logged in at the provider, but none of your groups has a role in this "
            "console. Ask its administrator (setting console.oidc.roles).",
            f"no value of the claim {settings.roles_claim} has a role",
        )
    return max(given, key=_RANKS.index)


def _value(claims: Claims, path: str) -> Any:
    """A claim by its name, which may have dots, else by the names of claims within claims."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value
