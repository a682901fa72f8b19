"""A console process over a real broker with something of everything, and a person who may act."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
from tests.integration.test_console import Running

from penstock.bus.nats import NatsBus
from penstock.bus.protocol import Outgoing
from penstock.config import Settings
from penstock.events.batch import BatchCreated, BatchProgressed, Counts
from penstock.events.envelope import Event, encode
from penstock.events.graph import GraphStarted, GraphStep
from penstock.events.job import JobCompleted, JobDead, JobDispatched, JobError, JobStarted
from penstock.events.scaling import Reason, ScalingDecisionMade, SlaBreached
from penstock.events.snapshot import Budget, HostSnapshot, PoolSnapshot, PoolWorkers, Quantiles
from penstock.events.subjects import Subjects
from penstock.events.worker import Claim, WorkerReport
from penstock.events.workflow import WorkflowAdvanced
from penstock.events.workflow_memo import ScheduledStep, WaitGroup
from penstock.jobs.client import Client
from penstock.jobs.job_type import NamedJob
from penstock.jobs.queues import queue_messages
from penstock.jobs.workflows.declared.reading import from_values
from penstock.operations.console_access import ConsoleAccess

PERSON, PASSWORD = "ada", "correct horse battery"
DEAD, LOST = 212, 4
"""Jobs that died of one failure, and of another."""
BROKEN_WAITING = 1_204
"""Jobs of ``reports`` that waited when its promise was broken."""
OWN = {"Sec-Fetch-Site": "same-origin"}
POOLS = {
    "PENSTOCK_POOLS__IMPORTS__SLA_SECONDS": "120",
    "PENSTOCK_POOLS__WORKFLOWS__SLA_SECONDS": "10",
    "PENSTOCK_POOLS__NIGHTLY__SLA_SECONDS": "3600",
}
"""Besides ``reports``; of ``nightly`` nothing is measured."""
_MEASURED_SECONDS = 840
_ERROR = "builtins.TimeoutError"


class Filled:
    """A console with something of everything.

    Attributes:
        decision: id of one that changed a number.
        earlier: id of the one before it.
        fingerprint: of the failure of which most jobs died.
        alert: key of one that fires.
        bulk: id of an action on many jobs that has ended.
        simulation: id of one that has ended.
        moment: of the past, at which a promise was broken.
    """

    def __init__(self, running: Running, bus: NatsBus, settings: Settings) -> None:
        self.running, self.bus, self.settings = running, bus, settings
        self.subjects = Subjects(settings.prefix)
        self.client = Client.over(bus, settings, source="test")
        self.decision = self.earlier = self.fingerprint = self.alert = self.bulk = ""
        self.simulation = self.moment = ""

    @property
    def paths(self) -> list[str]:
        """Of all pages."""
        return [
            *("/", "/pools", "/pools/reports", "/pools/nightly", "/queues", "/decisions"),
            *("/queues/reports", "/queues/imports-low", "/costs", "/costs?days=14", "/search"),
            *("/search?q=rep", "/definitions", "/schedules/nightly", "/capacity/workers/h2-w1"),
            "/acts/worker.drain/h2-w1",
            *("/metrics-catalog", "/records", "/api-docs", "/jobs/lost-1/payload"),
            *("/jobs?q=tag:nightly", "/jobs?q=batch:november", "/jobs?q=state:suspended"),
            *("/jobs?q=state:completed", "/workflows/approval", "/workflows?state=suspended"),
            *("/acts/queue.pause/reports", "/acts/job.recover/run-1", "/acts/gone/x"),
            f"/bulk/{self.bulk}",
            *("/pools/reports/simulate", f"/simulations/{self.simulation}"),
            *(f"/decisions/{self.decision}?strategy=hybrid&max_workers=9",),
            *(f"/decisions/{self.decision}?workers=9", "/decisions?pool=reports&every=true"),
            *("/jobs", "/jobs?q=state:dead", "/jobs?q=color:red", "/jobs/dead-001", "/jobs/run-1"),
            *("/acts/job.retry/dead-001", "/acts/pool.hold/reports", "/acts/workflow.signal/flow"),
            *("/failures", f"/failures/{self.fingerprint}", "/workflows", "/workflows/sales"),
            *(
                "/workflows/flow",
                "/batches",
                "/batches/november",
                "/bulk",
                "/tags",
                "/stuck",
                "/schedules",
            ),
            *("/capacity", "/capacity/h1", "/alerts", f"/alerts/{self.alert}", "/alerts/history"),
            *("/alerts/rules", "/alerts/rules/burn-fast", "/alerts/channels", "/alerts/silences"),
            *("/alerts/new-rule", "/alerts/new-rule?kind=dead-letters"),
            *("/views", "/jobs?q=queue:reports&columns=state,worker,batch,finished"),
            "/acts/alert.rule.remove/burn-fast",
            *("/system", "/events", "/settings", "/account", "/accounts", "/audit", "/jobs/gone"),
            "/elevate?next=/accounts",
            *(f"{path}as_of={self.moment}" for path in ("/?", "/queues?", "/capacity?")),
            *(f"/decisions?as_of={self.moment}", f"/decisions/{self.earlier}?as_of={self.moment}"),
            *(f"/pools?as_of={self.moment}", f"/pools/reports?as_of={self.moment}"),
            *(f"/capacity/h1?as_of={self.moment}", f"/jobs/run-1?as_of={self.moment}"),
            f"/search?q=rep&as_of={self.moment}",
        ]

    async def fill(self) -> None:
        """Stores it all, and waits until the console shows it."""
        await self._measure()
        decisions = list(_decisions())
        self.earlier, self.decision = decisions[-2].id, decisions[-1].id
        for number in range(LOST):  # with arguments, so that they can run again
            await self.client.dispatch_named(
                "shop.render", {"day": "2026-11-01"}, queue="reports", job_id=f"lost-{number}"
            )
        payload = (await self.client.job("lost-0")).record.payload
        last = await self._store(*decisions, *_jobs(payload), *_groups(), *_suspended())
        dead = [f"lost-{number}" for number in range(LOST)]
        dead += [f"dead-{number:03}" for number in range(DEAD)]
        records = [(await self.client.job(job_id)).record for job_id in dead]
        await self.bus.append_many(
            [queue_messages.dead_letter(self.subjects, record, {}) for record in records]
        )
        await self.client.schedules.add(
            "nightly",
            NamedJob("shop.close_day", queue="reports")(),
            "30 2 * * *",
            zone="Europe/Berlin",
        )
        await self.client.schedules.add(
            "hourly", NamedJob("shop.load_orders", queue="imports")(), "5 * * * *"
        )
        await self.client.schedules.pause("hourly")
        await self.client.definitions.define(from_values(_DEFINITION))
        await self.client.pause_queue("imports-low", "the supplier's interface is down until noon")
        await self.running.until("/health", lambda health: health["standing"]["position"] >= last)
        [failure, *_] = self.running.get("/failures")["items"]
        self.fingerprint = failure["fingerprint"]
        alerts = await self.running.until("/alerts", lambda listing: listing["items"])
        self.alert = alerts["items"][0]["alert"]["key"]
        await self._simulate()
        await self._break_promise()

    async def _break_promise(self) -> None:
        """Of ``reports``, for a moment: what services publish later shows nothing of it."""
        await self._publish(_pool("reports", datetime.now(UTC), BROKEN_WAITING, 27, 41.0))
        last = await self._store(
            SlaBreached(pool="reports", oldest_waiting_seconds=41.0, sla_seconds=30)
        )
        await self._publish_now()
        await self.running.until("/health", lambda health: health["standing"]["position"] >= last)
        marks = self.running.get("/marks")["items"]
        self.moment = next(one["at"] for one in marks if one["kind"] == "breach")

    async def _simulate(self) -> None:
        """One that fails: nothing recorded the settings that its jobs ran under."""
        order = {"pool": "reports", "max_workers": 9}
        async with httpx.AsyncClient(headers=OWN) as browser:
            begun = await browser.post(f"{self.running.url}/api/v1/simulations", json=order)
        self.simulation = begun.json()["id"]
        path = f"/simulations/{self.simulation}"
        await self.running.until(path, lambda answer: answer["state"] == "failed")

    async def _store(self, *events: Event) -> int:
        messages = [Outgoing(self.subjects.event(event), encode(event)) for event in events]
        answers = await self.bus.append_many(messages)
        return max(answer for answer in answers if isinstance(answer, int))

    async def make_person(self) -> None:
        """A person who may do anything, with a password."""
        access = ConsoleAccess(self.bus, self.subjects, "test")
        await access.add_account(PERSON, "admin")
        secret, _ = await access.make_setup_link(PERSON)
        path = f"{self.running.url}/setup/{PERSON}/{secret}"
        form = {"password": PASSWORD, "again": PASSWORD}
        async with httpx.AsyncClient(headers=OWN) as browser:
            for _ in range(50):
                answer = await browser.post(path, data=form)
                if answer.status_code == 303:
                    return
        raise AssertionError(answer.text)

    async def act_on_many(self) -> None:
        """Discards one dead job as the person does it: so that there is an action on many."""
        async with httpx.AsyncClient(headers=OWN, base_url=self.running.url) as browser:
            await browser.post("/login", data={"account": PERSON, "password": PASSWORD})
            what = {"verb": "delete", "target": "jobs", "filter": "", "ids": ["lost-1"]}
            preview = (await browser.post("/api/v1/bulk/preview", json=what)).json()
            named = {"confirm": preview["confirm"], "count": 1, "title": "the table is gone"}
            answer = await browser.post("/api/v1/bulk", json=what | named)
            assert answer.is_success, answer.text
            self.bulk = answer.json()["id"]

    async def _measure(self) -> None:
        now = datetime.now(UTC)
        for ago in range(_MEASURED_SECONDS, -1, -4):
            at, phase = now - timedelta(seconds=ago), ago / _MEASURED_SECONDS
            waiting = int(1100 * math.exp(-(((phase - 0.35) / 0.18) ** 2))) + 12
            ready = 12 if phase > 0.55 else 44 if phase > 0.2 else 24
            late = 41.0 if 0.3 < phase < 0.5 else 6 + waiting / 60
            await self._publish(_pool("reports", at, waiting, ready, late))
        await self._publish_now()

    async def keep_current(self) -> None:
        """Publishes what services publish each second, for ever."""
        while True:
            await self._publish_now()
            await asyncio.sleep(1)

    async def _publish_now(self) -> None:
        now = datetime.now(UTC)
        await self._publish(_pool("reports", now, 37, 27, 6.6))
        await self._publish(_pool("imports", now, 6, 6, 3.0))
        await self._publish(_pool("workflows", now, 1, 2, 0.1))
        for host, reports, cores in (("h1", 13, 13.5), ("h2", 14, 15.9)):
            shares = {"reports": reports, "imports": 3, "workflows": 1}
            pools = {
                pool: PoolWorkers(
                    planned=share,
                    started=share,
                    ready=share,
                    names=tuple(f"{host}-w{number}" for number in range(4))
                    if pool == "reports"
                    else (),
                )
                for pool, share in shares.items()
            }
            await self._publish(
                HostSnapshot(
                    host=host,
                    cpu_cores=16,
                    cpu_busy_cores=cores,
                    memory_bytes=2**36,
                    memory_used_bytes=int(cores * 2**31),
                    pools=pools,
                    at=now,
                )
            )
            for number in range(4):
                await self._report(host, f"{host}-w{number}", number)

    async def _report(self, host: str, worker: str, number: int) -> None:
        now = time.time()
        is_busy = host == "h2"
        claim = Claim(job_id=f"run-{number}", ack_subject="", running_seconds=26.0, queue="reports")
        report = WorkerReport(
            worker=worker,
            host=host,
            pool="reports",
            pid=4000 + number,
            state="busy" if is_busy else "idle",
            number=1,
            at=now,
            started_at=now - 1800,
            cpu_seconds=412.0 + number,
            memory_bytes=310 * 2**20,
            claims=(claim,) if is_busy else (),
        )
        await self.bus.signal(
            self.subjects.worker_report(host, worker), msgspec.json.encode(report)
        )

    async def _publish(self, snapshot: PoolSnapshot | HostSnapshot) -> None:
        subjects = self.subjects
        if isinstance(snapshot, PoolSnapshot):
            subject = subjects.pool_snapshot(snapshot.pool)
        else:
            subject = subjects.host_snapshot(snapshot.host)
        await self.bus.append(Outgoing(subject, encode(snapshot)))


def _pool(name: str, at: datetime, waiting: int, ready: int, p99: float) -> PoolSnapshot:
    return PoolSnapshot(
        pool=name,
        queues=(name,),
        waiting=waiting,
        running=ready,
        oldest_waiting_seconds=p99 * 0.8,
        arrival_per_second=18.2,
        throughput_per_second=21.0,
        pickup=Quantiles(
            count=600,
            mean_seconds=p99 / 3,
            p50_seconds=p99 / 4,
            p95_seconds=p99 / 2,
            p99_seconds=p99,
        ),
        service=Quantiles(
            count=600, mean_seconds=1.1, p50_seconds=0.97, p95_seconds=2.0, p99_seconds=4.1
        ),
        budget=Budget(
            sla_seconds=30,
            quantile=0.99,
            window_seconds=28 * 86_400.0,
            jobs=1_204_000,
            late=4_500 if name == "reports" else 120,
            remaining_share=0.62 if name == "reports" else 0.98,
            burn_rate_short=2.2 if name == "reports" else 0.1,
            burn_rate_long=1.4 if name == "reports" else 0.1,
        ),
        workers_ready=ready,
        slots_ready=ready,
        at=at,
    )


def _decisions() -> Iterator[ScalingDecisionMade]:
    now = datetime.now(UTC)
    for ago, current, target, why in (
        (820, 8, 12, "12 wanted by backlog: 96 jobs wait"),
        (460, 12, 44, "44 wanted by burst: 1,048 jobs wait"),
        (160, 44, 24, "24 wanted by backlog: 40 jobs wait"),
        (40, 24, 27, "27 wanted by backlog: 120 jobs wait"),
    ):
        yield ScalingDecisionMade(
            pool="reports",
            at=now - timedelta(seconds=ago),
            current=current,
            target=target,
            reasons=(
                Reason(
                    step="strategy", rule="backlog", workers=target + 3, text=why,
                    values={"waiting": 120, "job_seconds": 0.97},
                ),
                Reason(step="bounds", rule="max_workers", workers=target + 1, text="not reached"),
                Reason(
                    step="placement", rule="capacity", workers=target,
                    text=f"{target}: h1 has room for {target // 2}, h2 for {target - target // 2}",
                ),
            ),
            strategy="backlog",
            sla_seconds=30,
            predicted_pickup_seconds=24 if target > 12 else 33,
            placement={"h1": target // 2, "h2": target - target // 2},
        )  # fmt: skip


def _jobs(payload: bytes) -> Iterator[Event]:
    """What waits, runs, has ended, and 212 that died of the same."""
    now = datetime.now(UTC)
    for number in range(LOST):
        _, *further = _died(
            f"lost-{number}", "shop.render", "no such table: prices", payload, "ValueError"
        )
        yield from further
    for number in range(DEAD):
        yield from _died(
            f"dead-{number:03}", "shop.load_orders", f"order {number} timed out", payload
        )
    for number in range(12):
        about: dict[str, Any] = {"job_id": f"done-{number}", "queue": "reports"}
        at = now - timedelta(seconds=60 - number)
        yield JobDispatched(**about, function="shop.render", payload=b"", at=at, tags=("nightly",))
        yield JobStarted(**about, attempt=1, host="h1", worker="h1-w1", pickup_seconds=0.4, at=at)
        yield JobCompleted(**about, attempt=1, run_seconds=2.1 + number / 10)
    for number in range(4):
        about = {"job_id": f"run-{number}", "queue": "reports"}
        yield JobDispatched(**about, function="shop.load_orders", payload=b"", tags=("nightly",))
        yield JobStarted(**about, attempt=1, host="h2", worker=f"h2-w{number}", pickup_seconds=1.2)
    for number in range(6):
        yield JobDispatched(
            job_id=f"wait-{number}", queue="imports", function="shop.import_prices", payload=b""
        )


def _died(
    job_id: str, function: str, message: str, payload: bytes, kind: str = "TimeoutError"
) -> Iterator[Event]:
    error = JobError(kind=f"builtins.{kind}", message=message, traceback="File shop.py, line 12")
    about: dict[str, Any] = {"job_id": job_id, "queue": "reports"}
    yield JobDispatched(**about, function=function, payload=payload, tags=("nightly",))
    yield JobStarted(**about, attempt=1, host="h1", worker="h1-w1", pickup_seconds=0.4)
    yield JobDead(**about, function=function, error=error, attempt=1)


_DEFINITION: dict[str, Any] = {
    "name": "month_end",
    "description": "Closes the books of a month, once its prices are there.",
    "steps": [
        {"name": "prices", "function": "shop.import_prices"},
        {"name": "close", "function": "shop.close_month", "needs": ["prices"]},
    ],
}


def _suspended() -> Iterator[Event]:
    """A coded workflow that waits for a person."""
    about: dict[str, Any] = {"job_id": "approval", "queue": "workflows"}
    now = datetime.now(UTC)
    yield JobDispatched(**about, function="shop.approve_refund", payload=b"", kind="workflow")
    yield JobStarted(**about, attempt=1, host="h1", worker="h1-w1", pickup_seconds=0.1)
    waiting = ScheduledStep(
        n=1, key="approved", kind="signal", digest="approved", due_at=now + timedelta(days=2)
    )
    yield WorkflowAdvanced(
        **about, number=1, now=now, scheduled=(waiting,), wait=(WaitGroup((1,)),)
    )


def _groups() -> Iterator[Event]:
    """A batch, a coded workflow and a graph."""
    steps = (
        GraphStep(name="extract", payload=b""),
        GraphStep(name="validate", payload=b"", needs=(0,)),
        GraphStep(name="thumbnails", payload=b"", needs=(0,)),
        GraphStep(name="report", payload=b"", needs=(1, 2)),
    )
    yield BatchCreated(batch_id="november", title="November", total=200)
    yield BatchProgressed(
        batch_id="november", counts=Counts(pending=60, completed=130, failed=7, cancelled=3)
    )
    yield JobDispatched(
        job_id="flow", queue="workflows", function="shop.close_month", payload=b"", kind="workflow"
    )
    began = datetime.now(UTC) - timedelta(seconds=240)
    yield GraphStarted(graph_id="sales", title="daily sales", steps=steps, at=began)
    for number, function, ran in (
        (0, "extract", 41.0),
        (2, "thumbnails", 12.5),
        (1, "check", None),
    ):
        about: dict[str, Any] = {"job_id": f"sales_step_{number}", "queue": "reports"}
        at = began + timedelta(seconds=45 if number else 1)
        yield JobDispatched(**about, function=f"shop.{function}", payload=b"", at=at)
        yield JobStarted(**about, attempt=1, host="h1", worker="h1-w1", pickup_seconds=0.3, at=at)
        if ran is not None:
            ended = at + timedelta(seconds=ran)
            yield JobCompleted(**about, attempt=1, run_seconds=ran, at=ended)
