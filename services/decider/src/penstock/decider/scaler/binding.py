"""Where the scaler may listen: closed by default; other machines by certificates of both sides."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc  # type: ignore[import-untyped]

from penstock.bus.access import is_loopback
from penstock.config import ConfigError, Settings
from penstock.config.scaler import Scaler as ScalerSettings
from penstock.config.topology import pools

_FILES = ("tls_certificate_file", "tls_key_file", "tls_client_ca_file")
_LEAST_REPEATS = 2


def check(settings: Settings) -> None:
    """Refuses settings with which the scaler could not start, or would be open to other machines.

    Raises:
        ConfigError: names the setting and what to do.
    """
    pools(settings)
    scaler = settings.scaler
    least = _LEAST_REPEATS * settings.decider.repeat_seconds
    if scaler.stale_seconds < least:
        raise ConfigError(
            f"scaler.stale_seconds is {scaler.stale_seconds:g}, expected {least:g} or more: the "
            "decider repeats a decision that does not change only each decider.repeat_seconds"
        )
    missing = [name for name in _FILES if not getattr(scaler, name)]
    if missing and len(missing) < len(_FILES):
        raise ConfigError(f"scaler.{missing[0]} is empty: TLS needs all of {', '.join(_FILES)}")
    if missing and not is_loopback(scaler.address):
        raise ConfigError(
            f"scaler.address is {scaler.address}, which other machines reach, and the scaler would "
            f"answer anyone: set scaler.{', scaler.'.join(_FILES)}, or leave scaler.address at "
            "127.0.0.1"
        )
    if not missing:
        _check_files(scaler)


def credentials(scaler: ScalerSettings) -> grpc.ServerCredentials | None:
    """TLS that asks callers for a certificate; None for plain text on loopback."""
    if not scaler.tls_certificate_file:
        return None
    certificate, key, authority = (_bytes(scaler, name) for name in _FILES)
    return grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=authority, require_client_auth=True
    )


def _check_files(scaler: ScalerSettings) -> None:
    for name in _FILES:
        _bytes(scaler, name)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(scaler.tls_certificate_file, scaler.tls_key_file)
        context.load_verify_locations(scaler.tls_client_ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the files scaler.{', scaler.'.join(_FILES)} cannot be used: {error}"
        ) from error


def _bytes(scaler: ScalerSettings, name: str) -> bytes:
    file = Path(getattr(scaler, name))
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"scaler.{name}: {file} cannot be read: {error.strerror}") from error
