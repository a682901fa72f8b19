"""Kind ``kafka``: topics, and how far a consumer group is in them. It joins no group.

What waits is the lag: records between the group's committed offsets and the ends of the partitions.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from penstock.config.extras import needed
from penstock.metrics.core.sources.partitions import Reset
from penstock.metrics.sources.source import Kind, QueueSource, SourceSettings

_PORT = 9092
_Path = Annotated[str, Meta(max_length=4_000)]


class KafkaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The consumer group, how its consumers are set up, and how the brokers are reached.

    Attributes:
        group: ``group.id`` of the consumers.
        auto_offset_reset: as the consumers have ``auto.offset.reset``.
        stuck_seconds: a partition in which the group commits nothing for so long, while it goes on
            in others, asks for no workers. Longer than a batch of messages takes.
        brokers: further ``HOST:PORT`` to begin with, besides that of ``url``.
        security_protocol: as the consumers have ``security.protocol``.
        sasl_mechanism: as the consumers have it; the user is that of ``url``.
        ca_file: certificates of authorities, in place of the system's.
        certificate_file: certificate for the brokers, with its key in it or in ``key_file``.
    """

    group: Annotated[str, Meta(min_length=1, max_length=500)]
    auto_offset_reset: Reset = "latest"
    stuck_seconds: Annotated[float, Meta(ge=10, le=86_400)] = 300.0
    brokers: Annotated[tuple[str, ...], Meta(max_length=20)] = ()
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    ca_file: _Path = ""
    certificate_file: _Path = ""
    key_file: _Path = ""

    def __post_init__(self) -> None:
        """Raises ValueError: options that exclude each other."""
        if (self.ca_file or self.certificate_file) and not self.is_tls:
            raise ValueError("ca_file and certificate_file need security_protocol SSL or SASL_SSL")
        for broker in self.brokers:
            address_of(f"kafka://{broker}")

    @property
    def is_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def is_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")


def address_of(url: str) -> tuple[str, int]:
    """Host and port; raises ValueError where there is no host, or no number of a port."""
    with suppress(ValueError):
        address = urlsplit(url)
        if address.hostname:
            return address.hostname, address.port or _PORT
    raise ValueError(f"brokers: expected HOST:PORT, found {url.removeprefix('kafka://')[:80]!r}")


def _open(settings: SourceSettings) -> QueueSource:
    with needed("kafka", f"sources.{settings.name}: kind 'kafka'", "penstock-metrics"):
        from penstock.metrics.sources.kafka.source import KafkaSource  # noqa: PLC0415 - an extra
    return KafkaSource(settings)


KIND = Kind(open=_open, schemes=("kafka",), options=KafkaOptions)
