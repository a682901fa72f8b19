"""Settings of the external scaler for KEDA."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from penstock.config.section import ALL, Port, Positive, Section


class Scaler(Section, frozen=True, kw_only=True):
    """The external scaler: KEDA asks it by gRPC how many workers pools in advisor mode need.

    Attributes:
        enabled: whether ``penstock up`` starts it.
        address: of this machine. Addresses that other machines reach need all three files below.
        port: of gRPC.
        tls_certificate_file: PEM, with the chain; empty: no TLS.
        tls_key_file: PEM, of that certificate.
        tls_client_ca_file: PEM of the authority that signed KEDA's certificate. Each client with
            a certificate of it may call: use one that signs for KEDA alone.
        stale_seconds: no answer is given from an older decision: KEDA then keeps the replicas as
            they are, or uses its fallback. At least twice ``decider.repeat_seconds``.
        max_streams: streams that are open at a time; further ones are refused.
    """

    of_machine = ALL

    enabled: bool = False
    address: str = "127.0.0.1"
    port: Port = 9471
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_client_ca_file: str = ""
    stale_seconds: Positive = 30.0
    max_streams: Annotated[int, Meta(ge=1, le=10_000)] = 2_000
