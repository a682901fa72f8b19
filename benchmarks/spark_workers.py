"""Spark Workers: how soon they are there, what they weigh, how they go; sessions. Prints JSON.

``start``: from a command published to the Worker being ALIVE at its Master, through a real
executor, with and without class archives, beside Spark's own script; resident memory.
``session``: from nothing to the first answer, of a Connect server and of a classic session.
``drain``: a shuffle on three Workers while two of them are taken away. ``bursts``, ``steady``: a
load on a fleet that Penstock scales, and on a fixed one with Spark's dynamic allocation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from machine import describe
from penstock.bus.nats import connect
from penstock.bus.protocol import Outgoing
from penstock.cli.main import main as penstock
from penstock.config import Settings
from penstock.config.load import check
from penstock.events.envelope import encode
from penstock.events.scaling import WorkersScaled
from penstock.events.subjects import Subjects
from penstock.executor.app import run as run_executor
from penstock.executor.spark import connect_server, standalone, training
from penstock.executor.spark.java import find_spark
from penstock.executor.spark.leftovers import FOLDER
from penstock.runtime import children
from penstock.runtime.broker import Broker
from penstock.runtime.paths import LOOPBACK, free_port, temporary_dir
from penstock.spark.class_archive import session_archive
from penstock.spark.java import find_java
from penstock.spark.master import Master, MasterAway, address, ui_url
from spark_apps import BURSTS, CLASSIC, CLIENT, SHUFFLE, STEADY, session_code

PATIENCE_SECONDS = 120.0
HOST = "bench-host"
POOL = "bench"


class Site:
    """A folder with settings of a local cluster, and its Master's web address."""

    def __init__(self, folder: Path, **pool: Any) -> None:
        self.folder, self.secret = folder, secrets.token_urlsafe(24)
        file = folder / "secret"
        file.write_text(self.secret)
        file.chmod(0o600)
        self.tree: dict[str, Any] = {
            "prefix": "bench",
            "host": {
                "name": HOST,
                "run_dir": str(folder / "run"),
                "drain_seconds": 60.0,
                "reserve_cpu_cores": 0,
                "reserve_memory_bytes": 0,
                "max_cpu_share": 1,
            },
            "spark": {"remote": "sc://127.0.0.1:1"},
            "cluster": {
                "master": "local",
                "secret_file": str(file),
                "port": free_port(),
                "ui_port": free_port(),
            },
            "pools": {POOL: {"kind": "spark", "cpu_cores": 0.1, **pool}},
        }
        self.settings: Settings = check(self.tree)
        self.master = Master(ui_url(self.settings.cluster))

    def alive(self) -> int:
        try:
            return sum(worker.state == "ALIVE" for worker in self.master.view().workers)
        except MasterAway:
            return -1

    def app(self, code: str, **conf: str) -> children.Child:
        """An application on this cluster."""
        script = self.folder / "app.py"
        conf = {"spark.authenticate.secret": self.secret, **conf}
        script.write_text(session_code(address(self.settings.cluster), conf) + code)
        env = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK}
        (self.folder / "app.log").unlink(missing_ok=True)
        argv = [sys.executable, str(script)]
        return children.start(argv, name="app", log=self.folder / "app.log", env=env)

    def run(self, what: str) -> children.Child:
        """This program as a service with these settings."""
        config = self.folder / "settings.json"
        config.write_text(json.dumps(self.tree))
        argv = [sys.executable, __file__, what, str(config)]
        log = self.folder / f"{what}.log"
        return children.start(argv, name=what, cwd=self.folder, log=log)

    def told(self, app: children.Child) -> dict[str, Any]:
        """What an application that has ended printed of itself."""
        lines = (self.folder / "app.log").read_text().splitlines()
        found = [line.removeprefix("TOLD") for line in lines if line.startswith("TOLD")]
        if not found:
            raise SystemExit(str(app.failed("told nothing")))
        return dict(json.loads(found[-1]))


def until(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> float:
    """When it became true, POSIX seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("it took too long")
        time.sleep(0.01)
    return time.time()


@contextmanager
def run_master(site: Site) -> Iterator[int]:
    cluster = site.settings.cluster
    argv = [
        *(sys.executable, "-m", "penstock.executor.spark.master"),
        *("--folder", str(site.folder / "master"), "--secret-file", cluster.secret_file),
        *("--port", str(cluster.port), "--ui-port", str(cluster.ui_port)),
    ]
    child = children.start(argv, name="master", log=site.folder / "master.log")
    try:
        until(lambda: site.alive() >= 0)
        yield child.pid
    finally:
        child.end()


# --- start ---------------------------------------------------------------------------------------
def start(repetitions: int) -> dict[str, Any]:
    """Worker and Master, three ways."""
    with temporary_dir() as cache:
        os.environ["XDG_CACHE_HOME"] = str(cache)
        found = {
            "spark-class": by_script(repetitions),
            "direct": asyncio.run(by_executor(repetitions)),
        }
        began = time.monotonic()
        training.main(["daemon"])
        found["archive_made_seconds"] = {"once": round(time.monotonic() - began, 1)}
        found["archive"] = asyncio.run(by_executor(repetitions))
    return found


def by_script(repetitions: int) -> dict[str, Any]:
    """Spark's own way: `spark-class`, a launcher's Java, a shell, the Worker's Java."""
    spark, samples = find_spark(), []
    with temporary_dir() as folder:
        site = Site(folder)
        with run_master(site):
            secure = "-Dspark.authenticate=true"
            env = {
                **os.environ,
                **standalone.environment(spark, folder, LOOPBACK, site.secret),
                "SPARK_DAEMON_JAVA_OPTS": secure,
            }
            for _ in range(repetitions):
                began = time.time()
                argv = [
                    *(str(spark.home / "bin" / "spark-class"),),
                    *("org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK),
                    *("--webui-port", "0", "--cores", "1", "--memory", "1g"),
                    *("--work-dir", str(folder / "work"), address(site.settings.cluster)),
                ]
                worker = subprocess.Popen(argv, env=env, stdout=-3, stderr=-3)
                samples.append((until(lambda: site.alive() == 1) - began, _mib(worker.pid)))
                worker.terminate()
                worker.wait()
                until(lambda: site.alive() == 0)
    return summary(samples)


async def by_executor(repetitions: int) -> dict[str, Any]:
    """The product's way, from the command published."""
    samples = []
    async with fleet() as (site, master_pid, executor, scale):
        await asyncio.sleep(3)  # the executor is up and at rest
        for _ in range(repetitions):
            began = await scale(1)
            alive_at = await asyncio.to_thread(until, lambda: site.alive() == 1)
            [java] = [p for p in psutil.Process(executor.pid).children() if p.name() == "java"]
            samples.append((alive_at - began, _mib(java.pid)))
            await scale(0)
            await asyncio.to_thread(until, lambda: site.alive() == 0)
            await asyncio.to_thread(until, lambda java=java: not java.is_running())
        master_mib = round(_mib(master_pid))
    return {**summary(samples), "master_mib": master_mib}


Scale = Callable[[int], Awaitable[float]]


@asynccontextmanager
async def fleet() -> AsyncIterator[tuple[Site, int, children.Child, Scale]]:
    """Broker, Master and executor; and a function that publishes a plan and says when."""
    with temporary_dir() as folder, Broker(folder / "nats") as broker:
        site = Site(folder)
        site.tree["nats"] = {"url": broker.url}
        settings = check(site.tree)
        bus, subjects, versions = await connect(settings), Subjects(settings.prefix), count(1)

        async def scale(workers: int) -> float:
            plan = {"host": HOST, "epoch": 1, "version": next(versions)}
            body = encode(WorkersScaled(pools={POOL: workers}, **plan))
            published_at = time.time()
            await bus.append(Outgoing(subjects.command(HOST), body))
            return published_at

        with run_master(site) as master_pid:
            executor = site.run("--executor")
            try:
                yield site, master_pid, executor, scale
            finally:
                await executor.stop(20)
                await bus.close()


# --- session -------------------------------------------------------------------------------------
def session(repetitions: int) -> dict[str, Any]:
    """From nothing to a first answer."""
    with temporary_dir() as cache:
        os.environ["XDG_CACHE_HOME"] = str(cache)
        found: dict[str, Any] = {}
        for name in ("plain", "archive"):
            if name == "archive":
                began = time.monotonic()
                training.main(["connect", "session"])
                found["made_seconds"] = round(time.monotonic() - began, 1)
            found[name] = {
                "connect": spread([asyncio.run(connect_once()) for _ in range(repetitions)]),
                "classic": spread([classic_once() for _ in range(repetitions)]),
            }
    return found


async def connect_once() -> float:
    with temporary_dir() as folder:
        began = time.monotonic()
        server = await connect_server.start(folder, connect_server.Options(threads=2))
        try:
            script = folder / "client.py"
            script.write_text(CLIENT.format(remote=server.remote))
            client = children.start([sys.executable, str(script)], name="client")
            if await client.ended():
                raise SystemExit("the client failed")
            return time.monotonic() - began
        finally:
            await server.stop()


def classic_once() -> float:
    flags = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *session_archive().flags)
    code = CLASSIC.format(flags=" ".join(flags))
    with temporary_dir() as folder:
        env = {**os.environ, "JAVA_HOME": str(find_java().home_for_launchers(folder))}
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", code], check=True, stderr=-3, env=env)
        return time.monotonic() - began


# --- drain, versus -------------------------------------------------------------------------------
def drain(repetitions: int) -> dict[str, Any]:
    """Two of three Workers go in the middle of a shuffle."""
    runs = [asyncio.run(_drain()) for _ in range(repetitions)]
    return {name: [run[name] for run in runs] for name in runs[0]}


async def _drain() -> dict[str, Any]:
    """Once; ``drain_seconds``: until both are gone."""
    async with fleet() as (site, _, _, scale):
        await scale(3)
        await asyncio.to_thread(until, lambda: site.alive() == 3)
        app = site.app(SHUFFLE)
        while await asyncio.to_thread(_ended_tasks, site) <= 10:
            await asyncio.sleep(0.5)
        began = await scale(1)
        folders = site.folder / "run" / "spark-workers"
        gone_at = await asyncio.to_thread(until, lambda: len(list(folders.iterdir())) == 1)
        await app.ended()
        return {**site.told(app), "drain_seconds": round(gone_at - began, 1)}


def _ended_tasks(site: Site) -> int:
    try:
        apps = site.master.view().activeapps
        return sum(each.ended_tasks for app in apps for each in site.master.executors(app.id))
    except MasterAway:
        return 0


def bursts(repetitions: int) -> dict[str, Any]:
    """Bursts with idle gaps between them."""
    return versus(BURSTS, repetitions)


def steady(repetitions: int) -> dict[str, Any]:
    """One long stage that keeps every slot busy."""
    return versus(STEADY, repetitions)


def versus(load: str, repetitions: int) -> dict[str, Any]:
    """The same load on a fleet that Penstock scales, and on a fixed one with Spark's own way."""
    dynamic = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.executorIdleTimeout": "10s",
        "spark.dynamicAllocation.minExecutors": "0",
    }
    scaled = {"sla_seconds": 10, "max_workers": 4}
    fixed = {"min_workers": 4, "max_workers": 4}
    return {
        "penstock": on_fleet(load, repetitions, scaled),
        "dynamic allocation on 4 Workers": on_fleet(load, repetitions, fixed, **dynamic),
    }


def on_fleet(
    load: str, repetitions: int, pool: dict[str, Any], **conf: str
) -> dict[str, dict[str, Any]]:
    """Runs of a load under one `penstock up`, each from an idle fleet: medians, and all of them."""
    at_rest = pool.get("min_workers", 0)
    with temporary_dir() as folder:
        site = Site(folder, **pool)
        up = site.run("--up")
        try:
            runs = []
            for _ in range(repetitions):
                until(lambda: site.alive() == at_rest and java_processes(up.pid) == (at_rest, 0))
                runs.append(_run(site, up.pid, load, conf))
                print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
        finally:
            up.end(90)
    medians = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    return {"median": medians, "runs": {name: [run[name] for run in runs] for name in runs[0]}}


def _run(site: Site, up: int, load: str, conf: dict[str, str]) -> dict[str, Any]:
    """Worker-seconds count from the first task to the application's end."""
    app = site.app(load, **conf)
    until(lambda: "BEGIN" in (site.folder / "app.log").read_text())
    worker_seconds, executor_seconds, at = 0.0, 0.0, time.monotonic()
    while app.exit_code is None:
        time.sleep(0.25)
        now, (workers, executors) = time.monotonic(), java_processes(up)
        worker_seconds += workers * (now - at)
        executor_seconds += executors * (now - at)
        at = now
    told = site.told(app)
    app.end()
    rounded = {"worker_seconds": worker_seconds, "executor_seconds": executor_seconds}
    return {**told, **{name: round(seconds) for name, seconds in rounded.items()}}


def java_processes(pid: int) -> tuple[int, int]:
    """How many processes are Workers, those that start and drain among them, and how many Spark
    executors."""
    workers = executors = 0
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            words = process.cmdline()
            workers += f"/{FOLDER}/" in "".join(words[1:2])
            executors += "--executor-id" in words
    return workers, executors


# --- figures -------------------------------------------------------------------------------------
def _mib(pid: int) -> float:
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    return max(each.memory_info().rss for each in family) / 2**20


def summary(samples: list[tuple[float, float]]) -> dict[str, Any]:
    return {
        **spread([seconds for seconds, _ in samples]),
        "mib": round(statistics.median(mib for _, mib in samples)),
    }


def spread(seconds: list[float]) -> dict[str, Any]:
    ranked = sorted(seconds)
    return {
        "p50_seconds": round(statistics.median(ranked), 2),
        "min_seconds": round(ranked[0], 2),
        "max_seconds": round(ranked[-1], 2),
        "repetitions": len(ranked),
    }


PARTS = {
    "start": start,
    "session": session,
    "drain": drain,
    "bursts": bursts,
    "steady": steady,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; or all")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--executor", help=argparse.SUPPRESS)
    parser.add_argument("--up", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.executor:
        run_executor(check(json.loads(Path(told.executor).read_text())))
    elif told.up:
        Path("penstock.toml").write_text(_toml(json.loads(Path(told.up).read_text())))
        sys.argv = ["penstock", "up", "--no-live", "--ephemeral"]
        penstock()
    elif unknown := set(told.parts) - PARTS.keys():
        parser.error(f"found {', '.join(unknown)}, expected some of {', '.join(PARTS)}")
    else:
        results: dict[str, Any] = {"machine": describe()}
        for part in told.parts or PARTS:
            results[part] = PARTS[part](told.repetitions)
            print(json.dumps({part: results[part]}), file=sys.stderr, flush=True)
        print(json.dumps(results, indent=2))


def _toml(tree: dict[str, Any], path: str = "") -> str:
    plain = {key: value for key, value in tree.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in tree.items() if isinstance(value, dict)}
    lines = [f"[{path}]"] if path else []
    lines += [f"{key} = {json.dumps(value)}" for key, value in plain.items()]
    lines += [_toml(value, f"{path}.{key}".lstrip(".")) for key, value in tables.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
