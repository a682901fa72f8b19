"""A real Prometheus with the product's own rules, that scrapes services on this machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from penstock.runtime import children
from penstock.runtime.children import Child
from penstock.runtime.paths import LOOPBACK, free_port

DEPLOY = Path(__file__).parents[2] / "deploy"


def installed() -> bool:
    return shutil.which("prometheus") is not None


class Prometheus:
    """Runs until :meth:`end`; `deploy/prometheus/up.yml` with other ports, looking each second.

    Args:
        ports: of the services, by name. folder: for what it keeps.
    """

    def __init__(self, ports: Mapping[str, int], folder: Path) -> None:
        config = yaml.safe_load((DEPLOY / "prometheus" / "up.yml").read_text("utf-8"))
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(DEPLOY / "prometheus" / name) for name in config["rule_files"]]
        for job in config["scrape_configs"]:
            port = ports[job["job_name"].removeprefix("penstock-")]
            job["static_configs"] = [{"targets": [f"{LOOPBACK}:{port}"]}]
        path = folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(config), "utf-8")
        self._port = free_port()
        self.child: Child = children.start(
            [
                "prometheus",
                f"--config.file={path}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address={LOOPBACK}:{self._port}",
                "--enable-feature=exemplar-storage",
                "--log.level=warn",
            ],
            name="prometheus",
            log=folder / "prometheus.log",
        )

    def ask(self, path: str, **parameters: str) -> Any:
        """What its API answers; None while it does not."""
        asked = f"http://{LOOPBACK}:{self._port}/api/v1/{path}?{urlencode(parameters)}"
        try:
            with urlopen(asked, timeout=5) as answer:
                found = json.load(answer)
        except URLError:
            return None
        assert found["status"] == "success", found
        return found["data"]

    def until(self, condition: Any, what: str, seconds: float = 60.0) -> None:
        children.wait_until(self.child, lambda: bool(condition()), seconds, what)

    def down(self) -> list[str]:
        """Jobs that are not scraped."""
        found = self.ask("targets") or {"activeTargets": [{"health": "?", "scrapePool": "all"}]}
        return [each["scrapePool"] for each in found["activeTargets"] if each["health"] != "up"]

    def names(self) -> set[str]:
        """Of all series."""
        return set(self.ask("label/__name__/values") or ())

    def end(self) -> None:
        self.child.end(10.0)
