"""A Kafka cluster as a source: the lags of a consumer group in topics."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from time import time as wall_clock
from urllib.parse import unquote, urlsplit

from penstock.config.load import ConfigError
from penstock.metrics.core.sources.look import SourceFault, SourceLook, age_of
from penstock.metrics.core.sources.partitions import TopicProgress
from penstock.metrics.sources.kafka.client import KafkaClient, Partition
from penstock.metrics.sources.kafka.connection import Security
from penstock.metrics.sources.kafka.kind import KafkaOptions, address_of
from penstock.metrics.sources.source import SourceSettings

_MOST_READS = 32
"""Partitions of which the next record is read: those with the longest lags."""
_MOST_ROUNDS = 3
"""Batches without a record that are passed over in one look, in each partition."""


class KafkaSource:
    """Four requests a look, and one for each partition that lags and has moved."""

    def __init__(self, settings: SourceSettings) -> None:
        options: KafkaOptions = settings.options
        self._options = options
        servers = [
            address_of(settings.url),
            *(address_of(f"kafka://{one}") for one in options.brokers),
        ]
        self._client = KafkaClient(servers, _security(settings))
        self._topics: dict[str, TopicProgress] = {}
        self._heads: dict[Partition, tuple[int, float | None]] = {}

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        topics = await self._client.topics(queues)
        offsets, faults = await self._client.offsets(self._options.group, topics.leaders)
        faults |= topics.faults
        now = monotonic()
        for topic in topics.missing:
            self._progress(topic).forget()
        usable = [topic for topic in queues if topic not in faults]
        for topic in usable:
            self._progress(topic).observe(offsets[topic], now)
        await self._read_heads(usable, topics.leaders)
        return {topic: faults.get(topic) or self._look(topic, topics.cluster) for topic in queues}

    async def close(self) -> None:
        await self._client.close()

    def _progress(self, topic: str) -> TopicProgress:
        options = self._options
        return self._topics.setdefault(
            topic, TopicProgress(options.auto_offset_reset, options.stuck_seconds)
        )

    async def _read_heads(self, topics: Sequence[str], leaders: Mapping[Partition, int]) -> None:
        """Reads when the first records that wait came, and passes over what holds none."""
        for _ in range(_MOST_ROUNDS):
            positions = dict(self._unread(topics))
            batches = await self._client.batches(positions, leaders)
            for (topic, number), batch in batches.items():
                position, progress = positions[topic, number], self._topics[topic]
                if batch is None or batch.next_offset <= position:
                    self._heads[topic, number] = position, None
                    continue
                progress.skip(number, batch.next_offset if batch.is_empty else batch.offset)
                if not batch.is_empty:
                    start = progress.position(number)
                    self._heads[topic, number] = start, batch.timestamp(start)

    def _unread(self, topics: Sequence[str]) -> Iterator[tuple[Partition, int]]:
        """Positions whose records are not known, the longest lags first."""
        lags = {(name, nth): lag for name in topics for nth, lag in self._topics[name].lags.items()}
        self._heads = {place: head for place, head in self._heads.items() if place in lags}
        longest = sorted(lags, key=lags.__getitem__, reverse=True)[:_MOST_READS]
        for topic, number in longest:
            position = self._topics[topic].position(number)
            if self._heads.get((topic, number), (None,))[0] != position:
                yield (topic, number), position

    def _look(self, topic: str, cluster: str) -> SourceLook:
        progress = self._topics[topic]
        return SourceLook(
            waiting=progress.waiting,
            stuck=progress.stuck,
            oldest_seconds=self._oldest_seconds(topic) if progress.lags else 0.0,
            arrived=progress.arrived,
            ended=progress.ended,
            epoch=f"{cluster}.{progress.epoch}",
            cap=progress.partitions,
        )

    def _oldest_seconds(self, topic: str) -> float | None:
        """Age of the oldest record that is next in its partition; None where none is known."""
        progress = self._topics[topic]
        now = wall_clock()
        ages = [
            age_of(now - at)
            for (name, number), (position, at) in self._heads.items()
            if name == topic and at is not None and progress.position(number) == position
        ]
        return max((age for age in ages if age is not None), default=None)


def _security(settings: SourceSettings) -> Security:
    """Raises ConfigError: a user or a password is missing, or a file of the options is no good."""
    options, here = settings.options, f"sources.{settings.name}"
    user = unquote(urlsplit(settings.url).username or "")
    if options.is_sasl and not (user and settings.secret):
        raise ConfigError(
            f"{here}: {options.security_protocol} needs a user in url and secret_file"
        )
    if not options.is_sasl and (user or settings.secret):
        raise ConfigError(
            f"{here}: {options.security_protocol} takes no user and no secret_file: set "
            "security_protocol to SASL_SSL"
        )
    tls = None
    if options.is_tls:
        try:
            tls = ssl.create_default_context(cafile=options.ca_file or None)
            if options.certificate_file:
                tls.load_cert_chain(options.certificate_file, options.key_file or None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{here}: ca_file, certificate_file or key_file: {error}") from error
    return Security(
        tls=tls,
        mechanism=options.sasl_mechanism if options.is_sasl else "",
        user=user,
        password=settings.secret,
    )
