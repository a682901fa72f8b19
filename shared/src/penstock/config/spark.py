"""`[spark]`, `[cluster]` and `[pipeline]`: Spark for jobs, Spark pools, and the data pipeline."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Meta

from penstock.config.section import ALL, Count, Positive, Section


class Spark(Section, frozen=True, kw_only=True):
    """The host's shared Spark Connect server, or any other Spark.

    Attributes:
        remote: a Spark Connect address (``sc://…``) to use instead of the host's own server.
        token_file: holds the token that the server behind ``remote`` asks for.
        threads: local threads of the host's own server; 0 means one per usable core.
        memory: its Java heap.
        idle_seconds: it is stopped when unused this long.
        conf: Spark settings handed to the server.
        measure_cost: jobs record their CPU seconds, rows, shuffled bytes and peak memory on Spark.
            Turns on its web UI, on loopback, which every user of the host can read.
        ui_url: where that of a remote Spark is.
    """

    of_process = ALL
    of_machine = ("token_file",)

    remote: str = ""
    token_file: str = ""
    threads: Count = 0
    memory: Annotated[str, Meta(pattern=r"^[1-9][0-9]*[mg]$")] = "1g"
    idle_seconds: Positive = 300.0
    conf: dict[str, str] = {}
    measure_cost: bool = False
    ui_url: str = ""


class Cluster(Section, frozen=True, kw_only=True):
    """The Spark standalone cluster whose Workers are scaled: pools with ``kind = "spark"``.

    Attributes:
        master: ``local`` (`penstock up` starts a Master on this machine) or the address of one,
            ``spark://host:7077``.
        ui_url: its web address; empty means port 8080 of the same host.
        port: where a local Master listens.
        ui_port: where a local Master serves its web UI.
        interface: address that Master and Workers of this host listen at.
        secret_file: the secret that the cluster's processes share; mode 0600. Empty, with a local
            Master: `penstock up` makes one in .penstock/.
        worker_overhead_bytes: what a Worker needs beside the memory that it offers.
    """

    of_process = ALL
    of_machine = ("interface", "secret_file")

    master: Annotated[str, Meta(pattern=r"^(|local|spark://[A-Za-z0-9._:,\[\]-]+)$")] = ""
    ui_url: Annotated[str, Meta(pattern=r"^(|https?://[^\s/]+(/[^\s]*)?)$")] = ""
    port: Annotated[int, Meta(ge=1, le=65535)] = 7077
    ui_port: Annotated[int, Meta(ge=1, le=65535)] = 8080
    interface: str = "127.0.0.1"
    secret_file: str = ""
    worker_overhead_bytes: Annotated[int, Meta(ge=0)] = 160 * 1024 * 1024


class Pipeline(Section, frozen=True, kw_only=True):
    """The data pipeline as jobs of the platform it learns from, dispatched by the clock.

    Attributes:
        lake: a folder on any file system that Hadoop knows. Empty: there are no such jobs. Where no
            pool serves the queue ``pipeline``, there is an exclusive one of that name.
        master: the Spark that works: ``local[2]``, or a cluster's ``spark://host:7077``.
        memory_bytes: kept free for Spark on the host of that pool's worker, but no more than a
            quarter of the largest host's memory.
        land: when what is new is landed and summed up, as a cron expression; empty: never.
        forecast: when forecasts are made of what is new, too, and published, as a cron expression.
        weeks: how much of the past forecasts learn from.
        report: when a report of the last seven days is written, as a cron expression.
        report_file: the page that the report is written to; empty: no report.
        zone: time zone of the cron expressions, and of forecasts.
        nkey_file: the seed of the role ``pipeline``, on the hosts whose workers run these jobs;
            where the broker knows its users by NKeys.
        special_days: dates that are like a Sunday, such as ``2026-12-25``.
    """

    of_machine = ("nkey_file", "report_file")

    lake: str = ""
    master: Annotated[str, Meta(min_length=1)] = "local[2]"
    memory_bytes: Annotated[int, Meta(ge=0)] = 1_200_000_000
    land: str = "*/15 * * * *"
    forecast: str = "5 * * * *"
    weeks: Annotated[float, Meta(gt=0, le=104)] = 4.0
    report: str = "0 6 * * *"
    report_file: str = ""
    zone: str = "UTC"
    nkey_file: str = ""
    special_days: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("land", "forecast", "report"):
            if cron := getattr(self, name):
                _check_cron(name, cron, self.zone)
        for day in self.special_days:
            _check_day(day)


def _check_cron(name: str, cron: str, zone: str) -> None:
    try:
        CronSim(cron, datetime.now(ZoneInfo(zone)))
    except CronSimError as error:
        raise ValueError(
            f"{name} = {cron[:80]!r} is no cron expression ({error}); '*/15 * * * *' is each "
            "quarter of an hour"
        ) from error
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(f"zone = {zone[:80]!r} is not known; e.g. 'Europe/Berlin'") from error


def _check_day(text: str) -> None:
    try:
        date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"special_days: found {text[:40]!r}, expected e.g. '2026-12-25'"
        ) from error
