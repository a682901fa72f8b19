"""Settings of logins to the console by OpenID Connect."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from penstock.config.section import ALL, Section
from penstock.events.console import Role

_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}")
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Oidc(Section, frozen=True, kw_only=True):
    """Logins by an OpenID Connect provider, such as Keycloak, Entra ID, Okta or Google.

    Register the console there as a web application with the redirect address
    ``PUBLIC_URL/login/oidc/callback``.

    Attributes:
        issuer: address of the provider, exactly as its documents name it; empty for no such logins.
            Plain ``http://`` is accepted on loopback alone.
        client_id: of the console, as registered there.
        client_secret_file: file with the client's secret; empty for a client without one. The
            secret itself stands in no setting.
        hosts: further hosts at which the provider's endpoints may lie, such as
            ``oauth2.googleapis.com``. Requests go to the issuer's host and these alone.
        ca_file: PEM of the authority of the provider's certificate; empty: those of the system.
        scopes: that are asked for.
        roles_claim: claim of the ID token that names groups or roles, with dots for a claim within
            another (``realm_access.roles``).
        roles: the role of each value of that claim, such as ``{"data-platform" = "operator"}``; the
            highest counts. Who has none of these is refused.
        name_claim: claim by which the audit log names people, beside a hash of issuer and subject
            that is the same for one person alone.
        button: what the button of the login page says.
        session_hours: after which people log in anew: the console does not learn when the provider
            locks a person out, or takes away a group.
    """

    of_machine = ALL

    issuer: str = ""
    client_id: Annotated[str, Meta(max_length=256)] = ""
    client_secret_file: str = ""
    hosts: tuple[str, ...] = ()
    ca_file: str = ""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    roles_claim: Annotated[str, Meta(min_length=1, max_length=200)] = "groups"
    roles: dict[str, Role] = {}
    name_claim: Annotated[str, Meta(min_length=1, max_length=200)] = "email"
    button: Annotated[str, Meta(min_length=1, max_length=60)] = "Log in with single sign-on"
    session_hours: Annotated[float, Meta(gt=0, le=168)] = 12.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.issuer:
            return
        if not is_provider_address(self.issuer):
            raise ValueError(
                f"issuer: found {self.issuer!r}, expected an address such as "
                "'https://login.example.org/realms/main', without a query"
            )
        if not self.client_id:
            raise ValueError("client_id is missing: the provider gives it to the console")
        if not self.roles:
            raise ValueError(
                "roles are missing: without them each person is refused; for example "
                'roles = {"data-platform" = "operator"}'
            )
        if "openid" not in self.scopes:
            raise ValueError("scopes: 'openid' is missing")
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(f"hosts: found {host!r}, expected a name without scheme and port")


def is_provider_address(text: str) -> bool:
    """Whether it is an ``https`` address without user, query and fragment; ``http`` on loopback."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    is_plain = not (parts.query or parts.fragment or "@" in parts.netloc) and text.isascii()
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    return bool(host) and is_plain and is_safe and text.isprintable() and " " not in text
