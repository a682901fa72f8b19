"""What a Spark Master reports of its cluster, by JSON over HTTP; all calls block for a moment.

``/json/`` is the Master's own; what applications do is asked of their drivers, through the Master's
reverse proxy (``spark.ui.reverseProxy``): one address is enough, and no connection is made to
an address that an application names.
"""

from __future__ import annotations

import re
from datetime import datetime
from http.client import HTTPException
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

import msgspec

from penstock.config.spark import Cluster

T = TypeVar("T")

_SECONDS = 2.0
_MOST_BYTES = 16_000_000
_DRIVER = "driver"
_APP_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


class MasterAway(RuntimeError):
    """No Master answers there, or not as expected: where, and what was found."""


class Resource(msgspec.Struct, frozen=True):
    """What a Worker has of a resource, by name."""

    addresses: tuple[str, ...] = ()


class Worker(msgspec.Struct, frozen=True):
    """``state``: ``ALIVE``, ``DEAD``, ``DECOMMISSIONED`` or ``UNKNOWN``."""

    id: str
    state: str
    cores: int = 0
    coresused: int = 0
    resources: dict[str, Resource] = {}


class Application(msgspec.Struct, frozen=True):
    """``cores``: granted now. ``starttime``: POSIX milliseconds. ``state``: WAITING or RUNNING."""

    id: str
    name: str
    state: str
    starttime: int
    cores: int = 0
    resourcesperexecutor: tuple[dict[str, str | int], ...] = ()


class View(msgspec.Struct, frozen=True):
    """A Master's view. ``status``: ``ALIVE``, ``STANDBY``, ``RECOVERING``."""

    status: str
    workers: tuple[Worker, ...] = ()
    activeapps: tuple[Application, ...] = ()


class Stage(msgspec.Struct, frozen=True, rename="camel"):
    """An attempt of a stage; ``executor_run_time``: milliseconds, of all its ended tasks."""

    stage_id: int
    attempt_id: int
    status: str
    num_tasks: int
    num_active_tasks: int
    num_complete_tasks: int
    num_failed_tasks: int = 0
    executor_run_time: int = 0
    submission_time: str = ""

    @property
    def submitted_at(self) -> float | None:
        """POSIX seconds; None while it is not known."""
        if not self.submission_time:
            return None
        return datetime.fromisoformat(self.submission_time.replace("GMT", "+00:00")).timestamp()


class AppExecutor(msgspec.Struct, frozen=True, rename="camel"):
    """An executor of an application; ``total_duration``: milliseconds, of its ended tasks."""

    id: str
    active_tasks: int = 0
    completed_tasks: int = 0
    failed_tasks: int = 0
    total_duration: int = 0

    @property
    def ended_tasks(self) -> int:
        return self.completed_tasks + self.failed_tasks


class AppJob(msgspec.Struct, frozen=True, rename="camel"):
    """A Spark job of an application."""

    job_tags: tuple[str, ...] = ()


class _NoRedirection(HTTPRedirectHandler):
    """Follows no redirection: another server must not get the request."""

    def redirect_request(self, *_: object) -> None:
        return None


_open = build_opener(ProxyHandler({}), _NoRedirection).open


class Master:
    """The web address of a Master.

    Raises, in every call: MasterAway.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def view(self) -> View:
        return self._get("/json/", View)

    def stages(self, app_id: str, *statuses: str) -> tuple[Stage, ...]:
        """Stages of an application, in any of these states (``ACTIVE``, ``COMPLETE``, …)."""
        query = "&".join(f"status={status.lower()}" for status in statuses)
        return self._get(f"{_api(app_id)}/stages?{query}", tuple[Stage, ...])

    def executors(self, app_id: str) -> tuple[AppExecutor, ...]:
        """Living executors of an application, its driver among them."""
        return self._get(f"{_api(app_id)}/executors", tuple[AppExecutor, ...])

    def running_tags(self, app_id: str) -> frozenset[str]:
        """Tags of the Spark jobs that an application runs now."""
        jobs = self._get(f"{_api(app_id)}/jobs?status=running", tuple[AppJob, ...])
        return frozenset(tag for job in jobs for tag in job.job_tags)

    def totals(self, app_id: str) -> tuple[AppExecutor, ...]:
        """All executors that an application has had.

        Spark lists the driver among them, with the application's age for the duration of its tasks.
        """
        listed = self._get(f"{_api(app_id)}/allexecutors", tuple[AppExecutor, ...])
        return tuple(one for one in listed if one.id != _DRIVER)

    def _get(self, path: str, kind: type[T]) -> T:
        where = f"{self.url}{path}"
        try:
            with _open(where, timeout=_SECONDS) as answer:
                body = answer.read(_MOST_BYTES)
            return msgspec.json.decode(body, type=kind)
        except (OSError, HTTPException, ValueError) as error:
            raise MasterAway(f"{where}: {error}") from error


def address(cluster: Cluster) -> str:
    """What Workers and applications connect to."""
    if cluster.master != "local":
        return cluster.master
    return f"spark://{cluster.interface}:{cluster.port}"


def ui_url(cluster: Cluster) -> str:
    """The Master's web address: as configured, or where one is usually found."""
    host = urlsplit(cluster.master.split(",")[0]).hostname or cluster.interface
    port = cluster.ui_port if cluster.master == "local" else 8080
    return cluster.ui_url or f"http://{host}:{port}"


def _api(app_id: str) -> str:
    if not _APP_ID.fullmatch(app_id):
        raise MasterAway(f"found an application called {app_id[:100]!r}, expected letters, digits")
    return f"/proxy/{app_id}/api/v1/applications/{app_id}"
