"""What the console's access consists of, made once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.console.access.elevation import Elevations
from penstock.console.access.live_directory import LiveDirectory
from penstock.console.access.login_limits import LoginLimits
from penstock.console.access.passwords import Passwords
from penstock.console.access.rights import BY_SETTING, Rights
from penstock.events.subjects import Subjects
from penstock.operations.audit_log import AuditLog
from penstock.operations.console_access import ConsoleAccess

if TYPE_CHECKING:
    from penstock.console.access.oidc.flow import OidcLogins

COOKIE, PLAIN_COOKIE = "__Host-penstock", "penstock-session"
ATTEMPT_COOKIE, PLAIN_ATTEMPT_COOKIE = "__Host-penstock-login", "penstock-login"


@dataclass(frozen=True)
class AccessControl:
    """Accounts, tokens, sessions and the audit log.

    Attributes:
        directory: as they are now.
        store: makes and revokes them.
        audit: the audit log.
        is_encrypted: the console is served by TLS.
        read_only: it changes nothing but the audit log.
        rights: why it is, where it is, and whether the key decides so.
        oidc: logins by another provider; None where the settings name none.
    """

    directory: LiveDirectory
    store: ConsoleAccess
    audit: AuditLog
    is_encrypted: bool
    read_only: bool
    rights: Rights = field(default_factory=lambda: Rights(BY_SETTING))
    oidc: OidcLogins | None = None
    limits: LoginLimits = field(default_factory=LoginLimits)
    passwords: Passwords = field(default_factory=Passwords)
    elevations: Elevations = field(default_factory=Elevations)

    @property
    def cookie_name(self) -> str:
        """Of a session; browsers take the prefix ``__Host-`` by TLS alone."""
        return COOKIE if self.is_encrypted else PLAIN_COOKIE

    @property
    def attempt_cookie_name(self) -> str:
        """Of a login that has begun, while the browser is at the provider."""
        return ATTEMPT_COOKIE if self.is_encrypted else PLAIN_ATTEMPT_COOKIE

    def close(self) -> None:
        """Ends the thread for passwords."""
        self.passwords.close()


def control(
    bus: Bus, settings: Settings, source: str = "console", rights: Rights | None = None
) -> AccessControl:
    """The access of one console. Raises ConfigError: a secret cannot be read."""
    subjects = Subjects(settings.prefix)
    return AccessControl(
        directory=LiveDirectory(bus, subjects),
        store=ConsoleAccess(bus, subjects, source),
        audit=AuditLog(bus, subjects, source),
        is_encrypted=bool(settings.console.tls_certificate_file),
        read_only=settings.console.read_only,
        rights=rights or Rights(BY_SETTING),
        oidc=_oidc_logins(settings),
    )


def _oidc_logins(settings: Settings) -> OidcLogins | None:
    if not settings.console.oidc.issuer:
        return None
    from penstock.console.access.oidc.flow import OidcLogins  # noqa: PLC0415 - httpx: 9 MB

    return OidcLogins(settings.console)
