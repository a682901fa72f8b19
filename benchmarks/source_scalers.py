"""The scalers that `sources.py` compares; each starts and ends Celery workers of one queue."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from penstock.runtime import children
from penstock.runtime.broker import Broker
from penstock.runtime.children import Child
from source_brokers import STATISTICS_SECONDS

_POLL_SECONDS, _HPA_SECONDS, _STABLE_SECONDS, _COOLDOWN_SECONDS = 30.0, 15.0, 300.0, 300.0
_GRACE_SECONDS, _LENGTH, _TOLERANCE, _PODS_A_STEP = 30.0, 5, 0.1, 4
"""Defaults of KEDA 2.22 (`pollingInterval`, `cooldownPeriod`; `listLength` as its page shows it)
and of Kubernetes' autoscaler and pods."""
_DRAIN_SECONDS = 120.0
_SERVICES = ("orchestrator", "metrics", "decider", "executor")


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What all scalers are given.

    Attributes:
        worker: the command of a worker; ``{name}`` stands for its name.
        environment: variables of a worker.
        url: the broker of the messages.
        look_url: where Penstock looks at it; ``depth_url``: where it reads besides what waits.
        folder: for logs and files.
        peak: messages in work at the peak.
        most: workers at most.
        factor: how many times faster clocks run.
        promise_seconds: a message starts within this.
        mean_seconds: of a message.
        counts_others: Penstock counts what other programs use of the machine.
    """

    worker: tuple[str, ...]
    environment: dict[str, str]
    url: str
    look_url: str
    depth_url: str
    folder: Path
    peak: int
    most: int
    factor: float
    promise_seconds: float
    mean_seconds: float
    counts_others: bool


class Fleet:
    """Worker processes, ended as Kubernetes ends pods: TERM, and KILL after the grace period."""

    def __init__(self, setting: Setting) -> None:
        self._setting, self._made = setting, 0
        self.living: list[Child] = []
        self._ending: list[tuple[Child, float]] = []

    def scale(self, count: int) -> None:
        """Starts or ends as many as are missing or too many; the youngest end first."""
        self.living = [child for child in self.living if child.exit_code is None]
        while len(self.living) < count:
            self._made += 1
            name = f"w{self._made}"
            self.living.append(
                children.start(
                    [word.replace("{name}", name) for word in self._setting.worker],
                    name=name,
                    log=self._setting.folder / f"{name}.log",
                    env=self._setting.environment,
                )
            )
        grace = _GRACE_SECONDS / self._setting.factor
        while len(self.living) > count:
            child = self.living.pop()
            child.signal(signal.SIGTERM)
            self._ending.append((child, time.monotonic() + grace))

    def reap(self) -> None:
        """Kills those whose grace period is over."""
        now = time.monotonic()
        for child, until in self._ending:
            if child.wait(0) is None and now > until:
                child.signal(signal.SIGKILL)
        self._ending = [pair for pair in self._ending if pair[0].exit_code is None]

    def end(self) -> None:
        self.scale(0)
        while self._ending:
            self.reap()
            time.sleep(0.05)


class Fixed:
    """As many workers as the peak needs, all the time."""

    name = "fixed at peak"

    def __init__(self, setting: Setting, length: Callable[[], int]) -> None:
        self._fleet, self._count = Fleet(setting), setting.peak

    def start(self) -> None:
        self._fleet.scale(self._count)

    def step(self) -> None:
        self._fleet.reap()

    def end(self) -> None:
        self._fleet.end()


class Keda:
    """KEDA's operator and Kubernetes' autoscaler by their defaults, with compressed clocks.

    From zero KEDA starts one pod at a poll. From there on the autoscaler looks at the queue's
    length over the target: it leaves a tenth alone, doubles at most or adds four, and takes the
    highest recommendation of its stabilisation window for a step down. After the cool-down without
    a message KEDA scales to zero.
    """

    name = "KEDA's rule"

    def __init__(self, setting: Setting, length: Callable[[], int]) -> None:
        self._fleet, self._length, self._setting = Fleet(setting), length, setting
        self._replicas = 0
        self._polled_at = self._synced_at = self._active_at = float("-inf")
        self._wanted: deque[tuple[float, int]] = deque()

    def start(self) -> None:
        self.step()

    def step(self) -> None:
        self._fleet.reap()
        now, factor = time.monotonic(), self._setting.factor
        if now - self._polled_at >= _POLL_SECONDS / factor:
            self._polled_at = now
            self._poll(now, _COOLDOWN_SECONDS / factor)
        if self._replicas and now - self._synced_at >= _HPA_SECONDS / factor:
            self._synced_at = now
            self._replicas = self._synced(now, _STABLE_SECONDS / factor)
        self._fleet.scale(self._replicas)

    def end(self) -> None:
        self._fleet.end()

    def _poll(self, now: float, cooldown: float) -> None:
        if self._length() > 0:
            self._active_at = now
            self._replicas = max(self._replicas, 1)
        elif now - self._active_at >= cooldown:
            self._replicas = 0
            self._wanted.clear()

    def _synced(self, now: float, stable: float) -> int:
        waiting, replicas = self._length(), self._replicas
        desired = math.ceil(waiting / _LENGTH)
        if abs(waiting / (_LENGTH * replicas) - 1) <= _TOLERANCE:
            desired = replicas
        desired = min(max(desired, 1), self._setting.most)
        self._wanted.append((now, desired))
        while self._wanted[0][0] < now - stable:
            self._wanted.popleft()
        if desired < replicas:
            return min(max(wanted for _, wanted in self._wanted), replicas)
        return min(desired, max(2 * replicas, replicas + _PODS_A_STEP))


class Penstock:
    """The real services, each a process, with the pool's source at the broker of the messages."""

    name = "Penstock"

    def __init__(self, setting: Setting, length: Callable[[], int]) -> None:
        self._setting, self._broker, self._open = setting, Broker(), ExitStack()
        self._services: list[Child] = []

    def start(self) -> None:
        folder = self._setting.folder
        self._open.enter_context(self._broker)
        file = folder / "penstock.toml"
        file.write_text(self._toml(), "utf-8")
        for name in _SERVICES:
            command = [sys.executable, "-m", "penstock.cli.main", name, "--config", str(file)]
            child = children.start(
                command,
                name=name,
                log=folder / f"{name}.log",
                env=self._setting.environment,
            )
            self._services.append(child)
            if name == "orchestrator":  # which makes the streams
                _wait_for(child, "acknowledged jobs", 60.0)
        _wait_for(self._services[_SERVICES.index("decider")], "leading, epoch", 60.0)

    def step(self) -> None:
        for child in self._services:
            if child.exit_code is not None:
                raise child.failed("ended")

    def end(self) -> None:
        for child in reversed(self._services):
            child.signal(signal.SIGTERM)
        for child in self._services:
            child.end(_DRAIN_SECONDS / self._setting.factor + 15.0)
        self._open.close()

    def _toml(self) -> str:
        setting = self._setting
        command = [word.replace("{name}", "{worker}") for word in setting.worker]
        kind, url, secret = "celery", setting.look_url, ""
        if setting.url.startswith("amqp"):
            kind = "rabbitmq"
            file = setting.folder / "secret"
            file.touch(0o600)
            file.write_text(urlsplit(setting.url).password or "guest", "utf-8")
            secret = f"secret_file = {_text(str(file))}"
            if not url.startswith("amqp"):
                secret += f"\noptions.statistics_seconds = {STATISTICS_SECONDS}"
                secret += f"\noptions.amqp_url = {_text(setting.depth_url)}"
        drain = _DRAIN_SECONDS / setting.factor
        return "\n".join(
            (
                f'nats.url = "{self._broker.url}"',
                f'[host]\nname = "bench"\nrun_dir = {_text(str(setting.folder / "run"))}',
                f"count_other_cpu = {str(setting.counts_others).lower()}",
                "[http]\naddress = ''",
                f"[sources.bench]\nkind = {_text(kind)}\nurl = {_text(url)}\n{secret}",
                "[pools.bench]",
                'source = "bench"\nqueues = ["bench"]\npreset = "celery"',
                f"sla_seconds = {setting.promise_seconds}\nquantile = 0.99",
                *(['strategy = "backlog_only"'] if url.startswith("amqp") else ()),
                f"min_workers = 0\nmax_workers = {setting.most}",
                f"runtime_seconds = {setting.mean_seconds}",
                "cpu_cores = 0.02\nmemory_bytes = 64_000_000",
                f"command = [{', '.join(map(_text, command))}]",
                f'drain = {{ signal = "TERM", seconds = {drain}, then = "QUIT" }}',
                f"environment = [{', '.join(map(_text, setting.environment))}]",
            )
        )


def _text(word: str) -> str:
    return msgspec.json.encode(word).decode()


def _wait_for(child: Child, words: str, seconds: float) -> None:
    log = child.log
    assert log
    children.wait_until(child, lambda: words in log.read_text("utf-8"), seconds, words)


SCALERS: Sequence[type[Penstock] | type[Keda] | type[Fixed]] = (Penstock, Keda, Fixed)


def living(marker: str) -> int:
    """Processes on this machine with this word in their command."""
    word, count = marker.encode(), 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                count += word in Path(entry.path, "cmdline").read_bytes()
            except OSError:  # it has ended meanwhile
                continue
    return count
