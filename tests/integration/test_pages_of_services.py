"""A real service process, asked whether it lives and is ready, while its world comes and goes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from tests.integration.shell import Shell

from penstock.runtime import children
from penstock.runtime.broker import Broker
from penstock.runtime.children import Child
from penstock.runtime.interpreter import PAUSING
from penstock.runtime.paths import free_port

CONFIG = """
[nats]
url = "{url}"
request_timeout_seconds = 1
[streams]
events_max_bytes = 16_000_000
[decider]
lease_seconds = 2
stale_seconds = 2
[http]
{role}_port = {port}
[pools.reports]
"""


class Asked:
    """A service and its pages."""

    def __init__(self, child: Child, port: int, log: Path) -> None:
        self.child, self._port, self._log = child, port, log

    def get(self, path: str) -> tuple[int, Any]:
        """Status and what was said; 0 while nobody answers."""
        try:
            with urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=3) as answer:
                return answer.status, json.load(answer)
        except HTTPError as refused:
            return refused.code, json.load(refused)
        except (URLError, OSError):
            return 0, {}

    def until(self, status: int, check: str = "", reason: str = "", seconds: float = 20) -> Any:
        """Until `/readyz` answers so."""

        def fits() -> bool:
            found, said = self.get("/readyz")
            return found == status and reason in said.get("checks", {}).get(check, "")

        children.wait_until(self.child, fits, seconds, f"{status} {check} {reason}")

    def said(self) -> str:
        return self._log.read_text("utf-8")


@contextmanager
def running(role: str, broker: Broker, folder: Path, port: int) -> Iterator[Asked]:
    home = folder / f"{role}-{port}-{len(list(folder.iterdir()))}"
    home.mkdir()
    text = CONFIG.format(url=broker.url, role=role, port=port)
    (home / "penstock.toml").write_text(text)
    log = home / "log"
    child = children.start(Shell(home).argv(role), name=role, cwd=home, log=log, held_back=PAUSING)
    try:
        yield Asked(child, port, log)
    finally:
        child.end(10)


def test_without_its_broker_it_lives_and_is_not_ready(broker: Broker, tmp_path: Path) -> None:
    with running("metrics", broker, tmp_path, free_port()) as service:
        service.until(200)
        broker.stop()
        service.until(503, "broker", "did not answer")
        service.until(503, "measuring", "no queue was looked at")
        assert service.get("/healthz") == (200, {"alive": True, "reason": ""})
        broker.start()
        service.until(200, "broker", "ok")


def test_a_service_with_nothing_to_pause_says_so_and_ends_in_order_when_told_to_drain(
    broker: Broker, tmp_path: Path
) -> None:
    with running("metrics", broker, tmp_path, free_port()) as service:
        service.until(200)
        service.child.signal(signal.SIGUSR1)
        children.wait_until(
            service.child, lambda: "cannot be paused" in service.said(), 20, "saying so"
        )
        assert service.get("/readyz")[0] == 200
        service.child.signal(signal.SIGQUIT)
        assert service.child.wait(20) == 0


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_to_pause_does_not_end_a_service_that_starts(
    number: int, broker: Broker, tmp_path: Path
) -> None:
    with running("decider", broker, tmp_path, free_port()) as service:
        service.child.signal(number)
        children.wait_until(
            service.child, lambda: "cannot be paused" in service.said(), 20, "saying so"
        )


def test_a_decider_is_ready_when_somebody_leads_and_measures(
    broker: Broker, tmp_path: Path
) -> None:
    with running("decider", broker, tmp_path, free_port()) as decider:
        decider.until(503, "snapshots", "no snapshot of a pool came yet")
        with (
            running("metrics", broker, tmp_path, free_port()),
            running("decider", broker, tmp_path, free_port()) as standby,
        ):
            decider.until(200)
            standby.until(200, "leader", "ok")
        decider.until(503, "snapshots", "s old")


def test_a_service_whose_port_is_taken_says_so_and_works(broker: Broker, tmp_path: Path) -> None:
    port = free_port()
    with running("metrics", broker, tmp_path, port) as first:
        first.until(200)
        with running("metrics", broker, tmp_path, port) as second:
            children.wait_until(
                second.child,
                lambda: f"endpoint 127.0.0.1:{port} (" in second.said(),
                10,
                "complaining",
            )
            assert "set http.metrics_port" in second.said()
            assert second.child.exit_code is None
        assert first.get("/readyz")[0] == 200
