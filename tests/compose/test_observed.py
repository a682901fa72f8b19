"""The stack's Prometheus for real: it reaches everybody, is calm while all is well, and cries."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from tests.compose import figures
from tests.compose.compose_jobs import nap
from tests.compose.stack import HOSTS, Stack, docker, docker_soon, pinned
from tests.compose.watched import Watched
from tests.waiting import eventually

IMAGE = "prom/prometheus"
STAND_IN = """
FROM {base}
RUN install -d -o nobody -g nogroup /prometheus
COPY prometheus /bin/
USER nobody
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
"""
SERVICES = {"metrics": 1, "decider": 2, "orchestrator": 1, "console": 1, "executor": HOSTS}


class Prometheus:
    """Args: port: on this machine."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, path: str, **parameters: str) -> Any:
        """What its API answers; None while it does not."""
        asked = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urlencode(parameters)}"
        try:
            with urlopen(asked, timeout=5) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def rules(self) -> list[dict[str, Any]]:
        groups = (self.ask("rules") or {"groups": []})["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def firing(self) -> set[str]:
        return {each["name"] for each in self.rules() if each.get("state") == "firing"}

    def up(self) -> dict[str, int]:
        """How many of each service are reached."""
        targets = (self.ask("targets") or {"activeTargets": []})["activeTargets"]
        jobs = [each["labels"]["job"] for each in targets if each["health"] == "up"]
        return {name: jobs.count(f"penstock-{name}") for name in SERVICES}

    def value(self, query: str) -> float | None:
        found = (self.ask("query", query=query) or {"result": []})["result"]
        return float(found[0]["value"][1]) if found else None


@pytest.fixture(scope="module")
def prometheus(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """The service of docker-compose.yml, as it is shipped."""
    have_image(f"{IMAGE}:{pinned('PROMETHEUS_TAG')}", tmp_path_factory.mktemp("prometheus"))
    stack.compose("--profile", "observability", "up", "-d", "prometheus")
    yield Prometheus(stack.prometheus_port)
    stack.compose("--profile", "observability", "rm", "-s", "-f", "prometheus")


def have_image(image: str, folder: Path) -> None:
    """The real one where it can be had, else Debian's program in its place."""
    if found(lambda: docker("image", "inspect", image)) or found(lambda: docker("pull", image)):
        return
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip(f"neither {image} nor a program prometheus is there")
    shutil.copy(program, folder)
    (folder / "Dockerfile").write_text(STAND_IN.format(base=pinned("BASE")))
    docker("build", "-q", "-t", image, str(folder))


def found(ask: Callable[[], str]) -> bool:
    try:
        return bool(ask())
    except AssertionError:
        return False


async def test_prometheus_reaches_everybody_and_no_alert_comes(
    site: Watched, prometheus: Prometheus
) -> None:
    await eventually(lambda: prometheus.up() == SERVICES, 60, "scraping all services")
    started = "sum(penstock_jobs_started_total)"
    await eventually(lambda: prometheus.value(started) is not None, 30, "told of jobs")
    before = prometheus.value(started) or 0.0
    await asyncio.gather(*(site.dispatch(nap(seconds=0)) for _ in range(20)))
    await site.all_ended()
    await eventually(
        lambda: (prometheus.value(started) or 0.0) >= before + 20, 30, "told of 20 more jobs"
    )
    await eventually(
        lambda: all(rule["health"] == "ok" for rule in prometheus.rules()),
        30,
        "done with all rules",
    )
    figures.note(f"Prometheus: {prometheus.up()} scraped, {len(prometheus.rules())} rules healthy")
    assert len(prometheus.rules()) > 20
    assert prometheus.firing() == set()


async def test_an_alert_comes_when_nobody_leads_and_goes_when_somebody_does(
    site: Watched, prometheus: Prometheus
) -> None:
    deciders = [each for name in "ab" for each in site.stack.containers(f"decider-{name}")]
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(docker_soon("kill", each) for each in deciders))
    killed_at = loop.time()
    try:
        await eventually(lambda: "PenstockNoLeader" in prometheus.firing(), 90, "PenstockNoLeader")
        fired = loop.time() - killed_at
    finally:
        await asyncio.gather(*(docker_soon("start", each) for each in deciders))
    began_at = loop.time()
    await eventually(lambda: "PenstockNoLeader" not in prometheus.firing(), 90, "calm again")
    figures.note(
        f"both deciders killed: PenstockNoLeader fired after {fired:.0f} s, "
        f"and ended {loop.time() - began_at:.0f} s after they were started"
    )
