"""Where the console may listen: closed by default."""

from __future__ import annotations

import ssl
from pathlib import Path

from msgspec.structs import replace

from penstock.bus.access import is_loopback
from penstock.config import ConfigError, Settings
from penstock.config.console import Console as ConsoleSettings
from penstock.config.topology import pools
from penstock.console.web.credentials import Authenticator, Local, NoCredentials, TokenFile
from penstock.runtime import console_place, paths


class Held:
    """The address that this process listens at: new settings may name it, but no taken one."""

    def __init__(self) -> None:
        self._place: tuple[str, int] | None = None

    def take(self, console: ConsoleSettings) -> None:
        """Notes what this process is bound to."""
        self._place = (console.address, console.port)

    def check(self, settings: Settings) -> None:
        """Refuses settings with which the console could not go on. Raises ConfigError."""
        check(settings)
        console = replace(settings.console, port=console_place.port(settings))
        if self._place is None or (console.address, console.port) == self._place:
            return
        try:
            paths.check_port(console.port, console.address)
        except OSError as error:
            raise cannot_listen(console, error) from error


def cannot_listen(console: ConsoleSettings, error: OSError) -> ConfigError:
    """What is wrong with the address, and what to do."""
    return ConfigError(
        f"the console cannot listen at {console.address}:{console.port}: "
        f"{error.strerror}; set console.port to a free port, or 0 for any"
    )


def check(settings: Settings) -> None:
    """Refuses settings with which the console could not start, or would be open to other machines.

    Raises:
        ConfigError: names the setting and what to do.
    """
    pools(settings)
    console = settings.console
    authenticator(settings)
    if console.tls_certificate_file:
        _check_certificate(console)
    if is_loopback(console.address):
        return
    if not (console.tokens_file or console.login_required):
        raise ConfigError(
            f"console.address is {console.address}, which other machines reach, and no tokens are "
            "set: set console.login_required = true (accounts and tokens: penstock api), or "
            "console.tokens_file, or leave console.address at 127.0.0.1"
        )
    if not console.tls_certificate_file:
        raise ConfigError(
            f"console.address is {console.address}, which other machines reach: tokens would cross "
            "the network in clear text; set console.tls_certificate_file and console.tls_key_file"
        )


def _check_certificate(console: ConsoleSettings) -> None:
    certificate, key = console.tls_certificate_file, console.tls_key_file
    for name, file in (("tls_certificate_file", certificate), ("tls_key_file", key)):
        try:
            Path(file).read_bytes()
        except OSError as error:
            raise ConfigError(f"console.{name}: {file} cannot be read: {error.strerror}") from error
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"console.tls_certificate_file {certificate} and console.tls_key_file {key} cannot be "
            f"used: {error}"
        ) from error


def authenticator(settings: Settings) -> Authenticator:
    """Who is let in. Raises ConfigError: the tokens cannot be read."""
    if settings.console.tokens_file:
        return TokenFile(Path(settings.console.tokens_file))
    return NoCredentials() if settings.console.login_required else Local()
