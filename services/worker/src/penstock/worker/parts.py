"""The parts of a worker, made in the order in which they depend on each other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from penstock.bus.protocol import Bus
from penstock.config.topology import pools
from penstock.events.subjects import Subjects
from penstock.jobs import registry
from penstock.jobs.client import Client
from penstock.jobs.running.checkpoints import Checkpoints
from penstock.runtime.tasks import Tasks
from penstock.runtime.workers.assignment import Assignment
from penstock.runtime.workers.claims_file import Claimed
from penstock.runtime.workers.pulse import pulse_of
from penstock.worker.claiming.claimed_job import ClaimDeadline
from penstock.worker.claiming.claims import Claims
from penstock.worker.claiming.exclusive_queue import Exclusive, exclusively
from penstock.worker.claiming.in_flight import InFlightJobs
from penstock.worker.claiming.intake import Intake, intake_of
from penstock.worker.claiming.live_builds import LiveBuilds
from penstock.worker.claiming.lost_jobs import LostJobs
from penstock.worker.core.ahead import Ahead
from penstock.worker.lifetime import Lifetime
from penstock.worker.middleware import gates
from penstock.worker.middleware.gates import Gates
from penstock.worker.orphan import Orphan
from penstock.worker.output.job_output import JobOutput
from penstock.worker.output.stored_lines import stored_lines
from penstock.worker.reports import Reporter
from penstock.worker.running.attempt import Functions
from penstock.worker.running.commits import Commits
from penstock.worker.running.context import RunContext, RunServices
from penstock.worker.running.ending import Ending
from penstock.worker.running.job_limits import JobLimits
from penstock.worker.running.job_metrics import JobMetrics
from penstock.worker.running.recording import Recorder
from penstock.worker.running.runner import JobRunner, Runner
from penstock.worker.running.running_jobs import RunningJobs
from penstock.worker.running.slots import SlotRunner
from penstock.worker.spark.lease import SparkLease
from penstock.worker.state import WorkerState
from penstock.worker.upkeep import Upkeep
from penstock.worker.workflows.advances import Advances
from penstock.worker.workflows.recent_workflows import RecentWorkflows
from penstock.worker.workflows.suspensions import Suspensions
from penstock.worker.workflows.workflow_reader import WorkflowReader


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerParts:
    """What :class:`penstock.worker.loop.Worker` is made of. Every part is complete once made."""

    bus: Bus
    assignment: Assignment
    state: WorkerState
    tasks: Tasks
    slots: int
    claims: Claims
    intake: Intake
    ahead: Ahead
    in_flight: InFlightJobs
    lost_jobs: LostJobs
    running: RunningJobs
    runner: JobRunner
    advances: Advances
    output: JobOutput
    gates: Gates
    exclusive: Exclusive | None
    ending: Ending
    recorder: Recorder
    reporter: Reporter
    spark: SparkLease
    lifetime: Lifetime
    orphan: Orphan
    upkeep: Upkeep


def assemble(bus: Bus, assignment: Assignment, spark: SparkLease | None = None) -> WorkerParts:
    """Makes all parts; call it in the worker's loop.

    Args:
        assignment: who the worker is and which queues it serves.
        spark: instead of the host's own.
    """
    settings, jobs = assignment.settings, assignment.settings.jobs
    pool = pools(settings)[assignment.pool]
    profile, middleware = gates.load(pool.profile)
    slots = pool.job_slots
    spark = spark or SparkLease(assignment.run_dir, settings.spark)
    changed = asyncio.Event()
    state = WorkerState(changed)
    tasks = Tasks(state.broke)
    running = RunningJobs(measures_memory=profile.limit_job_memory_bytes > 0)

    # --- claiming and running
    claims_file = Claimed(assignment.run_dir, assignment.worker)
    build = registry.build(jobs.build)
    is_exclusive = pool.kind == "exclusive"
    subjects = Subjects(settings.prefix)
    claims = Claims(
        bus,
        settings,
        profile,
        assignment.host,
        assignment.worker,
        claims_file,
        slots=slots,
        builds=LiveBuilds(bus, subjects, assignment.pool, build, settings.host.lease_seconds),
        give_way=state.stop if is_exclusive else None,
    )
    job_metrics = JobMetrics()
    services = RunServices(
        loop=asyncio.get_running_loop(),
        client=Client.over(bus, settings),
        spark=spark,
        commits=Commits(bus, claims.joblog),
        checkpoints=Checkpoints(bus, claims.joblog.subjects, jobs.max_checkpoint_bytes),
        ring=claims.ring,
        metrics=job_metrics,
        worker=assignment.worker,
        slots=slots,
    )
    pulse = pulse_of(assignment)
    claim_deadline = ClaimDeadline(jobs.claim_seconds, pulse)
    pool_gates = Gates(bus, assignment, middleware, running.surrender)
    output = JobOutput(assignment.worker, stored_lines(bus, settings, assignment.host, claims.ring))
    recent = RecentWorkflows()
    reader = WorkflowReader(bus, claims.joblog, recent)
    advances = Advances(bus, claims.joblog, services.client, services.loop, reader)
    functions = Functions(partial(RunContext, services), pool_gates, output, advances)
    runner: JobRunner
    if slots == 1:
        runner = Runner(functions, running, claim_deadline=claim_deadline, pulse=pulse)
    else:
        runner = SlotRunner(
            functions,
            running,
            slots=slots,
            claimed=claims_file,
            claim_deadline=claim_deadline,
            pulse=pulse,
        )
    in_flight = InFlightJobs(claims, runner, changed)

    # --- recording and ending
    suspensions = Suspensions(bus, claims.joblog, services.client.dispatcher.sender, recent)
    recorder = Recorder(bus, claims, jobs.max_payload_bytes, suspensions)
    reporter = Reporter(
        bus,
        assignment,
        sla_seconds=profile.sla_seconds,
        in_flight=in_flight,
        running=running,
        slots=slots,
        spark=spark,
        state=state,
        build=build,
        job_metrics=job_metrics,
    )
    ending = Ending(
        running=running,
        in_flight=in_flight,
        recorder=recorder,
        reporter=reporter,
        spark=spark,
        state=state,
        tasks=tasks,
        slots=slots,
        grace_seconds=jobs.cancel_grace_seconds,
        drain_seconds=settings.host.drain_seconds,
    )
    lost_jobs = LostJobs(
        bus, claims.joblog, in_flight, ending, spark, jobs.cancel_grace_seconds, tasks
    )
    lifetime = Lifetime(profile, assignment.burst, state)
    orphan = Orphan(assignment.run_dir, settings.host.orphan_grace_seconds)
    return WorkerParts(
        bus=bus,
        assignment=assignment,
        state=state,
        tasks=tasks,
        slots=slots,
        claims=claims,
        intake=intake_of(bus, assignment),
        ahead=Ahead(jobs.claim_ahead_seconds, slots),
        in_flight=in_flight,
        lost_jobs=lost_jobs,
        running=running,
        runner=runner,
        advances=advances,
        output=output,
        gates=pool_gates,
        exclusive=exclusively(bus, assignment, in_flight, state),
        ending=ending,
        recorder=recorder,
        reporter=reporter,
        spark=spark,
        lifetime=lifetime,
        orphan=orphan,
        upkeep=Upkeep(
            bus=bus,
            claim_deadline=claim_deadline,
            in_flight=in_flight,
            job_limits=JobLimits(profile, running, ending, state),
            lifetime=lifetime,
            lost_jobs=lost_jobs,
            orphan=orphan,
            recorder=recorder,
            reporter=reporter,
            runner=runner,
            state=state,
        ),
    )
