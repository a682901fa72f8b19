"""Which kinds of sources there are, and a table ``[sources.NAME]`` made into a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from stat import S_IMODE
from typing import Any
from urllib.parse import urlsplit

import msgspec

from penstock.config import Pool, Settings, explain
from penstock.config.extras import ExtraMissing
from penstock.config.load import ConfigError
from penstock.config.source_patterns import is_pattern
from penstock.config.sources import SourceTable
from penstock.metrics.sources.source import Kind, QueueSource, SourceSettings, StreamReports

GROUP = "penstock.sources"
BUILTIN: Mapping[str, str] = {
    "beanstalkd": "penstock.metrics.sources.beanstalkd",
    "celery": "penstock.metrics.sources.celery",
    "command": "penstock.metrics.sources.command",
    "http": "penstock.metrics.sources.http",
    "kafka": "penstock.metrics.sources.kafka.kind",
    "laravel": "penstock.metrics.sources.laravel",
    "oban": "penstock.metrics.sources.sql_jobs:OBAN",
    "pgmq": "penstock.metrics.sources.pgmq",
    "procrastinate": "penstock.metrics.sources.sql_jobs:PROCRASTINATE",
    "prometheus": "penstock.metrics.sources.prometheus",
    "rabbitmq": "penstock.metrics.sources.rabbitmq",
    "redis-stream": "penstock.metrics.sources.redis_streams",
    "river": "penstock.metrics.sources.sql_jobs:RIVER",
    "rq": "penstock.metrics.sources.rq",
    "sidekiq": "penstock.metrics.sources.sidekiq",
    "spark-stream": "penstock.metrics.sources.spark_stream",
    "sql": "penstock.metrics.sources.sql",
    "sqs": "penstock.metrics.sources.sqs",
}
"""The kinds that ship: of a module that is imported when it is used, the attribute ``KIND`` or the
one behind the colon."""
_LONGEST_SECRET = 4_000
_BY_ARRIVALS = ("deadline", "simple_rate")
"""Strategies that a lower bound of the arrivals would let start too few workers."""


def check(sources: Mapping[str, SourceTable]) -> None:
    """Checks all tables; reads no secret and connects to nothing.

    Raises:
        ConfigError: an unknown kind, a wrong address, an unknown option.
    """
    for name, table in sources.items():
        _settings(name, table, "")


def faults(settings: Settings, configured: Mapping[str, Pool]) -> Iterator[str]:
    """What cannot work: wrong tables, and strategies that lack what they decide by.

    Args:
        configured: the pools of the settings.
    """
    for name, table in settings.sources.items():
        try:
            options = _settings(name, table, "").options
        except ConfigError as error:
            yield str(error)
            continue
        kind = kind_of(name, table)
        if not kind.lists_queues(options):
            yield from _pattern_faults(name, table, configured)
        only_waiting = kind.reports_only_waiting(table.url)
        if kind.counts_arrivals(options) and not only_waiting:
            continue
        for pool in configured.values():
            strategy = pool.profile.strategy
            by_arrivals = pool.source == name and strategy in _BY_ARRIVALS
            if by_arrivals and only_waiting:
                yield (
                    f"pools.{pool.name}: strategy {strategy!r} needs the rate of arrivals, and "
                    f"sources.{name} reports at this url only what waits: use a url that reports "
                    "more (of RabbitMQ, the management API), or strategy = 'backlog_only'"
                )
            elif by_arrivals and not pool.runtime_seconds:
                yield (
                    f"pools.{pool.name}: strategy {strategy!r} needs the rate of arrivals, of "
                    f"which sources.{name} knows only a lower bound: set runtime_seconds, or let "
                    "the source report what came or ended (options arrived or ended, where its "
                    "kind has them)"
                )


def _pattern_faults(name: str, table: SourceTable, configured: Mapping[str, Pool]) -> Iterator[str]:
    for pool in configured.values():
        patterns = filter(is_pattern, pool.source_queues if pool.source == name else ())
        for pattern in patterns:
            yield (
                f"pools.{pool.name}: queues: found the pattern {pattern!r}, but kind "
                f"{table.kind!r} as it is set in sources.{name} lists no queues: name them"
            )


def doubts(settings: Settings, configured: Mapping[str, Pool]) -> Iterator[str]:
    """What works and costs or promises too much, by the kinds of the sources.

    Args:
        settings: tables in which `faults` finds nothing.
        configured: the pools of the settings.
    """
    for name, table in settings.sources.items():
        kind = kind_of(name, table)
        yield from _indistinct(name, table, kind, configured)
        if table.look_seconds < kind.least_interval_seconds:
            yield (
                f"sources.{name}: interval_seconds {table.look_seconds:g}: each look at kind "
                f"{table.kind!r} is paid for, and its figures change more slowly: set "
                f"{kind.least_interval_seconds:g} or more"
            )
        for pool in configured.values():
            sla_seconds = pool.profile.sla_seconds
            if pool.source == name and sla_seconds < kind.least_sla_seconds:
                yield (
                    f"pools.{pool.name}: sla_seconds {sla_seconds:g} cannot be held by figures as "
                    f"late and coarse as those of kind {table.kind!r}: set "
                    f"{kind.least_sla_seconds:g} or more"
                )


def _indistinct(
    name: str, table: SourceTable, kind: Kind, configured: Mapping[str, Pool]
) -> Iterator[str]:
    """Several queues whose figures are those of all of them: each message would count for each."""
    pools = [pool for pool in configured.values() if pool.source == name]
    queues = [queue for pool in pools for queue in pool.source_queues]
    options = _settings(name, table, "").options
    if len(queues) > 1 and not kind.tells_queues_apart(table.url, options):
        yield (
            f"sources.{name}: nothing in what is asked for 'waiting' stands for the queue's name, "
            f"so that its {len(queues)} queues have the same figures, each with the messages of "
            "all: write the placeholder of the queue into it, or name one queue"
        )


def secret_fault(name: str, table: SourceTable) -> str:
    """Why this machine cannot use the file with the secret; empty where it can."""
    try:
        _secret(name, table.secret_file)
    except ConfigError as error:
        return str(error)
    return ""


def library_fault(name: str, table: SourceTable) -> str:
    """Which library of a kind that ships this machine lacks; empty where it has them."""
    if table.kind not in BUILTIN:
        return ""
    try:
        kind_of(name, table).open(_settings(name, table, ""))  # connects to nothing
    except ExtraMissing as error:
        return str(error)
    except ConfigError:  # without its secret
        return ""
    return ""


def open_source(name: str, table: SourceTable, reports: StreamReports | None = None) -> QueueSource:
    """The source of a table.

    Args:
        reports: of streaming queries, for a kind that reads those.

    Raises:
        ConfigError: as `check`; or the secret cannot be read, or a library is missing.
    """
    settings = _settings(name, table, _secret(name, table.secret_file))
    return kind_of(name, table).open(msgspec.structs.replace(settings, reports=reports))


def kind_of(name: str, table: SourceTable) -> Kind:
    """The kind that a table names: one that ships, else an installed one.

    Raises:
        ConfigError: there is none of this name, or it cannot be loaded.
    """
    if place := BUILTIN.get(table.kind):
        module, _, attribute = place.partition(":")
        kind = getattr(import_module(module), attribute or "KIND")
    else:
        points = {point.name: point for point in entry_points(group=GROUP)}
        if table.kind not in points:
            hint = explain.hint(table.kind, {*BUILTIN, *points})
            raise ConfigError(f"sources.{name}: unknown kind {table.kind!r}; {hint}")
        try:
            kind = points[table.kind].load()
        except Exception as error:
            raise ConfigError(
                f"sources.{name}: kind {table.kind!r} ({points[table.kind].value}) cannot be "
                f"loaded: {error!r}"
            ) from error
    if not isinstance(kind, Kind):
        raise ConfigError(f"sources.{name}: kind {table.kind!r}: {kind!r} is no sources.Kind")
    return kind


def _settings(name: str, table: SourceTable, secret: str) -> SourceSettings:
    kind, here = kind_of(name, table), f"sources.{name}"
    if kind.runs_command != bool(table.command):
        wanted = "needs command = [program, …]" if kind.runs_command else "takes no command"
        raise ConfigError(f"{here}: kind {table.kind!r} {wanted}")
    _check_url(here, table, kind)
    if table.secret_file and not kind.takes_secret:
        raise ConfigError(f"{here}: kind {table.kind!r} takes no secret_file")
    options = _options(f"{here}.options", kind, table.options)
    if mismatch := kind.mismatch(table.url, options):
        raise ConfigError(f"{here}: {mismatch}")
    return SourceSettings(
        name=name,
        url=table.url,
        secret=secret,
        command=table.command,
        timeout_seconds=table.timeout_seconds,
        options=options,
    )


def _check_url(here: str, table: SourceTable, kind: Kind) -> None:
    if not kind.schemes:
        if table.url:
            raise ConfigError(f"{here}: kind {table.kind!r} takes no url")
        return
    if kind.is_url_optional and not table.url:
        return
    schemes = " or ".join(f"{scheme}://" for scheme in kind.schemes)
    try:
        address = urlsplit(table.url)
        has_host = bool(address.hostname) or bool(address.path.strip("/"))
        _ = address.port
    except ValueError as error:
        raise ConfigError(f"{here}: url: {error}") from None
    if address.scheme not in kind.schemes or not has_host:
        actual = "none"
        if table.url:  # not shown: in one without a scheme, a password is not recognised
            has_scheme = "://" in table.url and address.scheme
            actual = f"{address.scheme}://…" if has_scheme else "one without its scheme"
        raise ConfigError(f"{here}: kind {table.kind!r} needs a url {schemes}HOST, found {actual}")


def _options(here: str, kind: Kind, options: Mapping[str, Any]) -> msgspec.Struct:
    try:
        return msgspec.convert(options, kind.options, strict=True)
    except msgspec.ValidationError as error:
        above = tuple(here.split("."))
        text = explain.explain(str(error), options, {}, root=kind.options, above=above)
        raise ConfigError(text if here in text else f"{here}: {text}") from error


def _secret(name: str, path: str) -> str:
    if not path:
        return ""
    here = f"sources.{name}.secret_file"
    try:
        mode, secret = S_IMODE(Path(path).stat().st_mode), Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{here}: {path} cannot be read: {error}") from error
    if mode & 0o077:  # no colon after the path: logs mask what follows "db-password:"
        raise ConfigError(f"{here}: {path} has mode {mode:o}, expected 600 (chmod 600)")
    if not 1 <= len(secret) <= _LONGEST_SECRET or not secret.isprintable():
        raise ConfigError(f"{here}: {path} holds no secret in one line")
    return secret
