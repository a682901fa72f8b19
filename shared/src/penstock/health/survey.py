"""Asks the broker, the disk and the last words of hosts and services how they are."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec
import psutil

from penstock.bus import streams as declared
from penstock.bus.access import NotPermitted
from penstock.bus.nats import NatsBus
from penstock.bus.protocol import Bus, BusError, Outgoing, Stored
from penstock.config import Settings
from penstock.config.topology import pools
from penstock.events.envelope import MalformedEvent
from penstock.events.snapshot import SNAPSHOTS, HostSnapshot
from penstock.events.subjects import Subjects
from penstock.health import operating
from penstock.health.facts import (
    BROKER_FILES,
    BrokerFacts,
    DiskFacts,
    Facts,
    HostFacts,
    LogFacts,
    ServiceFacts,
    StreamFacts,
)
from penstock.health.hooks import failing_hooks
from penstock.health.sources import sources
from penstock.health.unserved import unserved_queues
from penstock.operations import settings_in_force
from penstock.operations.orders import read_orders

FORGOTTEN_SECONDS = 3600.0
"""A host that has been silent for longer was taken away."""
REPORT_SECONDS = 15.0
"""Interval at which the orchestrator surveys and publishes its report."""
_PATIENCE_SECONDS = 2.0
_MOST_BYTES = 4_000_000
_SILENT_TIMES = 3.0


async def survey(bus: NatsBus, settings: Settings, *, serves: bool = False) -> Facts:
    """The facts now. A broker that does not answer is a fact, not an error.

    Args:
        serves: whether the orchestrator calls it, whose key may write to every stream.

    Raises:
        NotPermitted: this key may not read; the state of the broker is unknown.
    """
    configured = pools(settings)
    about: dict[str, Any] = {
        "pools": tuple(sorted(configured)),
        "lease_seconds": settings.host.lease_seconds,
        "disk_warning_share": settings.health.disk_warning_share,
        "disk_critical_share": settings.health.disk_critical_share,
    }
    monitored = await asyncio.to_thread(_monitor, settings.nats.monitor_url)
    try:
        began = time.time()
        states = await bus.stream_states()
        took = time.time() - began
        account = await bus.account()
        orders = await read_orders(bus, bus.subjects)
        hosts = operating.with_orders(await _hosts(bus, settings), orders)
        in_force = await settings_in_force.services(bus, bus.subjects)
        last_writes = await services(bus, settings, {record.service for record in in_force})
        event_log = await _event_log(bus, settings)
        unserved = await unserved_queues(bus, settings)
        read_sources = await sources(bus, bus.subjects, configured.values())
        hooks = await failing_hooks(bus, settings)
    except NotPermitted:
        raise
    except BusError as error:
        broker = _broker(monitored, {}, None, "")
        broker = msgspec.structs.replace(broker, error=str(error))
        return Facts(broker=broker, disks=_disks(settings, broker), **about)
    broker = _broker(monitored, account, took, bus.server_version)
    broker = msgspec.structs.replace(broker, write_error=await _write_error(bus, settings, serves))
    names = [stream["name"] for stream in declared.streams(settings, bus.subjects)]
    own_states = [state for state in states if state["config"]["name"] in names]
    existing = {state["config"]["name"] for state in own_states}
    return Facts(
        broker=broker,
        streams=tuple(_stream(state, bus.subjects.events_stream) for state in own_states),
        missing_streams=tuple(name for name in names if name not in existing),
        log=event_log,
        disks=_disks(settings, broker),
        hosts=hosts,
        holds=operating.holds(orders),
        settings_drift=operating.settings_drift(in_force, settings),
        services=last_writes,
        unserved=unserved,
        sources=read_sources,
        hooks=hooks,
        skew_seconds=_skew(own_states, began + took / 2),
        remote_spark=await _remote_spark(settings.spark.remote),
        **about,
    )


async def _write_error(bus: NatsBus, settings: Settings, serves: bool) -> str | None:
    """Why messages are not stored; empty when they are, None where that is not known.

    A broker answers requests while it can store nothing, and after its disk was full some of its
    streams store and others do not. Its monitoring endpoint reports that; without one, only a write
    shows it. A person's key writes only where it may remove: on jobs the orchestrator reports.
    """
    if error := await asyncio.to_thread(write_error, settings.nats.monitor_url):
        return error
    seconds = min(settings.nats.request_timeout_seconds, _PATIENCE_SECONDS)
    tries_all = serves or not bus.has_account
    refused_before = bus.violations
    for stream, subject in probes(bus.subjects, with_jobs=tries_all):
        try:
            async with asyncio.timeout(seconds):
                await bus.append(Outgoing(subject, b"1"))
                await bus.remove(stream, subject)
        except TimeoutError:
            error = f"stream {stream} did not acknowledge a small message within {seconds:g} s"
        except BusError as refusal:
            error = f"stream {stream}: {refusal}"
        if error:
            return None if bus.violations > refused_before else error
    return "" if tries_all else await _published_write_error(bus)


async def _published_write_error(bus: NatsBus) -> str | None:
    """The write error in the orchestrator's last report; None without a recent one."""
    subjects = bus.subjects
    stored = await bus.last(subjects.state_stream, subjects.state("health", "report"))
    if stored is None or time.time() - stored.at.timestamp() > REPORT_SECONDS * _SILENT_TIMES:
        return None
    try:
        return msgspec.json.decode(stored.body, type=Tried).write_error
    except (ValueError, RecursionError):  # of another version
        return None


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """Part of the report that the orchestrator keeps.

    Attributes:
        write_error: as in `BrokerFacts`.
    """

    write_error: str | None = None


def probes(subjects: Subjects, with_jobs: bool = True) -> Iterator[tuple[str, str]]:
    """Streams and subjects that nothing reads, for the smallest message there is.

    Args:
        with_jobs: also the stream of jobs, from which services alone may remove messages.
    """
    yield (subjects.state_stream, subjects.state("health", "probe"))
    if with_jobs:
        yield (subjects.jobs_stream, subjects.schedule("_probe", "health"))


def write_error(monitor_url: str) -> str:
    """The error of a stream that cannot write, by the server's own word; empty without one."""
    return own_word(monitor_url) or ""


def own_word(monitor_url: str) -> str | None:
    """As `write_error`; None where a server took the connection and did not answer in time."""
    if urlsplit(monitor_url).scheme not in ("http", "https"):
        return ""
    address = f"{monitor_url.rstrip('/')}/healthz"
    try:
        with urlopen(address, timeout=_PATIENCE_SECONDS):  # noqa: S310 - checked above
            return ""
    except HTTPError as refusal:
        with refusal:
            error = _error(refusal.read(_MOST_BYTES))
        return error if "write error" in error else ""
    except TimeoutError:
        return None
    except OSError:  # whether it answers at all is found out elsewhere
        return ""


def _error(body: bytes) -> str:
    try:
        return str(json.loads(body).get("error", ""))
    except (ValueError, AttributeError):
        return ""


def unreachable(settings: Settings, error: str) -> Facts:
    """The facts without a broker."""
    broker = BrokerFacts(error=error)
    return Facts(broker=broker, disks=_disks(settings, broker))


# --- the broker -----------------------------------------------------------------------------------
def _monitor(url: str) -> Mapping[str, Any]:
    """The server's own word on JetStream; empty without an address or an answer."""
    if urlsplit(url).scheme not in ("http", "https"):
        return {}
    with suppress(OSError, ValueError):
        address = f"{url.rstrip('/')}/jsz?config=true"
        with urlopen(address, timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 - checked above
            report = json.loads(answer.read(_MOST_BYTES))
            return report if isinstance(report, dict) else {}
    return {}


def _broker(
    monitored: Mapping[str, Any],
    account: Mapping[str, Any],
    answer_seconds: float | None,
    version: str,
) -> BrokerFacts:
    config = monitored.get("config") or {}
    limit = (account.get("limits") or {}).get("max_storage", -1)
    cluster = monitored.get("meta_cluster") or {}
    return BrokerFacts(
        version=version,
        answer_seconds=answer_seconds,
        stored_bytes=monitored.get("storage", account.get("storage")),
        storage_bytes=limit if limit > 0 else config.get("max_storage"),
        store_dir=config.get("store_dir", ""),
        sync_seconds=_sync_seconds(config),
        servers=cluster.get("cluster_size"),
    )


def _sync_seconds(config: Mapping[str, Any]) -> float | None:
    if config.get("sync_always"):
        return 0.0
    interval = config.get("sync_interval")
    return None if interval is None else interval / 1e9


def _stream(info: Mapping[str, Any], events_stream: str) -> StreamFacts:
    config, state = info["config"], info["state"]
    max_bytes = config["max_bytes"] if config.get("max_bytes", -1) > 0 else None
    is_event_log, configured = config["name"] == events_stream, declared.configured_bytes(config)
    others = (info.get("cluster") or {}).get("replicas") or []
    return StreamFacts(
        name=config["name"],
        bytes=state["bytes"],
        messages=state["messages"],
        max_bytes=max_bytes,
        accepts_bytes=declared.dispatch_limit(configured) if is_event_log and configured else None,
        full_refuses=config.get("discard") == "new",
        storage=config.get("storage", "file"),
        replicas=config.get("num_replicas", 1),
        lagging=sum(
            bool(replica.get("offline")) or not replica.get("current") for replica in others
        ),
    )


def _skew(states: Sequence[Mapping[str, Any]], asked_at: float) -> float | None:
    """Seconds by which this clock is before the broker's, give or take half an answer."""
    moments = [state["ts"] for state in states if state.get("ts")]
    return asked_at - datetime.fromisoformat(moments[0]).timestamp() if moments else None


# --- this machine ---------------------------------------------------------------------------------
def _disks(settings: Settings, broker: BrokerFacts) -> tuple[DiskFacts, ...]:
    places = {BROKER_FILES: broker.store_dir, "run files": settings.host.run_dir}
    disks = []
    for use, path in places.items():
        if path and Path(path).exists():
            usage = psutil.disk_usage(path)
            total = usage.used + usage.free  # what is reserved for root is neither
            disks.append(DiskFacts(path=path, use=use, used_bytes=usage.used, total_bytes=total))
    return tuple(disks)


async def _event_log(bus: Bus, settings: Settings) -> LogFacts | None:
    subjects = Subjects(settings.prefix)
    stored = await bus.last(subjects.state_stream, subjects.state("cursor", "log"))
    if stored is None:
        return None
    try:
        return msgspec.json.decode(stored.body, type=LogFacts)
    except (ValueError, RecursionError):  # of another version
        return None


# --- hosts and services ---------------------------------------------------------------------------
async def _hosts(bus: NatsBus, settings: Settings) -> tuple[HostFacts, ...]:
    subjects = Subjects(settings.prefix)
    stream = subjects.snapshots_stream
    names = await bus.count(stream, subjects.host_snapshot("*"))
    snapshots = [await bus.last(stream, subject) for subject in names]
    hosts = (_host(stored) for stored in snapshots if stored is not None)
    return tuple(host for host in hosts if host is not None)


def _host(stored: Stored) -> HostFacts | None:
    """None for a host that left in an orderly way, or long ago."""
    silent = max(time.time() - stored.at.timestamp(), 0.0)
    try:
        snapshot = SNAPSHOTS.decode(stored.body)
    except MalformedEvent:
        return None
    if not isinstance(snapshot, HostSnapshot) or silent > FORGOTTEN_SECONDS:
        return None
    if snapshot.draining and not any(pool.started for pool in snapshot.pools.values()):
        return None
    return HostFacts(
        name=snapshot.host,
        silent_seconds=silent,
        skew_seconds=(snapshot.at - stored.at).total_seconds(),
        draining=snapshot.draining,
        memory_share=snapshot.memory_used_bytes / max(snapshot.memory_bytes, 1),
        spark=snapshot.spark,
        reload_error=snapshot.reload_error,
        pools=snapshot.pools,
    )


class Trace(NamedTuple):
    """A message that a service writes at an interval while it works."""

    name: str
    stream: str
    subject: str
    allowed_seconds: float


def traces(settings: Settings, subjects: Subjects) -> tuple[Trace, ...]:
    """Metrics and decider write often, the orchestrator seldom."""
    metrics = max(settings.metrics.interval_seconds * _SILENT_TIMES, settings.decider.stale_seconds)
    lease, kept = settings.decider.lease_seconds * _SILENT_TIMES, REPORT_SECONDS * _SILENT_TIMES
    state = subjects.state_stream
    return (
        Trace("metrics", subjects.snapshots_stream, subjects.pool_snapshot("*"), metrics),
        Trace("decider", state, subjects.state("lease", "decider"), lease),
        Trace("orchestrator", state, subjects.state("health", "report"), kept),
    )


async def services(
    bus: Bus, settings: Settings, running: Collection[str] = ()
) -> tuple[ServiceFacts, ...]:
    """Services by the last thing that each of them wrote.

    Args:
        running: names of those of which a process runs.
    """
    last_writes = []
    for name, stream, subject, allowed in traces(settings, Subjects(settings.prefix)):
        last = await bus.last(stream, subject)
        silent = max(time.time() - last.at.timestamp(), 0.0) if last else None
        last_writes.append(
            ServiceFacts(
                name=name,
                silent_seconds=silent,
                allowed_seconds=allowed,
                runs=name in running,
            )
        )
    return tuple(last_writes)


async def _remote_spark(remote: str) -> str | None:
    """Why the configured Spark cannot be reached; empty when it can, None when there is none."""
    if not remote:
        return None
    place = urlsplit(remote)
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            _, writer = await asyncio.open_connection(place.hostname, place.port or 15002)
            writer.close()
    except (OSError, ValueError, TimeoutError) as error:
        return f"Spark at {place.hostname}:{place.port or 15002} cannot be reached: {error!r}"
    return ""
