"""Certificates of an installation, on hosts whose clocks are wrong."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

from cryptography import x509

from penstock.bus import access
from penstock.cli.deploy import certificates

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def test_a_host_whose_clock_is_hours_behind_accepts_new_certificates() -> None:
    made = certificates.make(["broker"], NOW, days=30)
    for pem in (made.authority, made.certificate):
        certificate = x509.load_pem_x509_certificate(pem)
        assert certificate.not_valid_before_utc <= NOW - timedelta(hours=12)
        assert certificate.not_valid_after_utc == NOW + timedelta(days=30)


def test_a_certificate_out_of_its_dates_points_to_the_clock() -> None:
    error = ssl.SSLCertVerificationError("certificate is not yet valid")
    error.verify_code = 9
    assert "clock" in access.tls_failure(error)
    assert "TLS must come before" not in access.tls_failure(error)


def test_any_other_failure_of_tls_points_to_the_order_of_the_handshake() -> None:
    assert "handshake_first" in access.tls_failure(ssl.SSLError("wrong version number"))
