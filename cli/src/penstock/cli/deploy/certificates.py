"""TLS for one installation: an authority of its own, certificates of broker and console."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_SERVES_AND_JOINS = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
"""Servers of a cluster are each other's clients."""

_PEM = serialization.Encoding.PEM
_BACKDATED = timedelta(days=1)
"""Validity begins this much before it is issued: a host whose clock is behind refuses every broker
whose certificate "is not yet valid", and its services end. As ACME authorities do, with more room.
"""


class Certificates(msgspec.Struct, frozen=True, kw_only=True):
    """PEM texts. The authority's own key is not kept: renewing makes all of them anew."""

    authority: bytes
    certificate: bytes
    key: bytes
    console_certificate: bytes
    console_key: bytes


def make(names: Sequence[str], now: datetime, days: int) -> Certificates:
    """An authority, and certificates of the broker and of the console that it signed.

    Args:
        names: host names and addresses by which clients reach the broker; the console is reached by
            the same, but for ``nats``, and by ``console``.
        now: when they are issued; validity begins a day before.
        days: how long all are valid from ``now`` on.
    """
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("Penstock authority")
    span = (now - _BACKDATED, now + timedelta(days=days))
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key(), span)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )

    def issued(name: str, reached_by: Sequence[str]) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([_reached_by(one) for one in reached_by])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        certificate = (
            _builder(_name(name), authority_name, key.public_key(), span)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(_SERVES_AND_JOINS), critical=False)
            .add_extension(alternatives, critical=False)
            .add_extension(issuer, critical=False)
            .sign(authority_key, hashes.SHA256())
        )
        private = key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return certificate.public_bytes(_PEM), private

    certificate, key = issued("nats", names)
    others = [name for name in names if name != "nats"]
    console_certificate, console_key = issued("console", ["console", *others])
    return Certificates(
        authority=authority.public_bytes(_PEM),
        certificate=certificate,
        key=key,
        console_certificate=console_certificate,
        console_key=console_key,
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    span: tuple[datetime, datetime],
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(span[0])
        .not_valid_after(span[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _reached_by(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
