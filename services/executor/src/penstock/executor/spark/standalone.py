"""Master and Worker of a Spark standalone cluster: the arguments of their Java processes."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.config import ConfigError
from penstock.config.load import ENVIRONMENT_PREFIX
from penstock.executor.spark.java import SMALL, SparkJava, prepare

_LEAST_SECRET = 16
_SECURE = {
    "spark.authenticate": "true",
    "spark.decommission.enabled": "true",  # without it the signal is ignored
}
_MASTER = {
    **_SECURE,
    "spark.master.rest.enabled": "false",
    "spark.master.ui.decommission.allow.mode": "DENY",
    "spark.ui.killEnabled": "false",
    "spark.ui.reverseProxy": "true",  # drivers are asked through the Master
    "spark.deploy.spreadOutApps": "false",  # packed, some Workers are idle and may go
    "spark.deploy.retainedApplications": "20",
    "spark.deploy.recoveryMode": "FILESYSTEM",  # started again, it goes on with those it knew
    "spark.port.maxRetries": "0",  # a taken port is an error, not a reason to listen elsewhere
}


@dataclass(frozen=True)
class Place:
    """Where a Master listens."""

    interface: str
    port: int
    ui_port: int

    @property
    def address(self) -> str:
        return f"spark://{self.interface}:{self.port}"


@dataclass(frozen=True)
class Offer:
    """What a Worker gives to the cluster.

    Attributes:
        name: the worker's; it names the addresses of its resource, and so is found at the Master.
        resource: the pool's name.
    """

    name: str
    resource: str
    slots: int
    memory_bytes: int


def write_master(spark: SparkJava, folder: Path, place: Place, flags: Sequence[str]) -> None:
    """Prepares a folder in which a Master can be started."""
    main = (
        "org.apache.spark.deploy.master.Master",
        *("--host", place.interface),
        *("--port", str(place.port)),
        *("--webui-port", str(place.ui_port)),
    )
    kept = {"spark.deploy.recoveryDirectory": str(folder / "recovery")}
    prepare(folder, spark.arguments(folder, (*SMALL, *flags), {**_MASTER, **kept}, *main))


def write_worker(
    spark: SparkJava, folder: Path, interface: str, master: str, offer: Offer, flags: Sequence[str]
) -> None:
    """Prepares a folder in which a Worker can be started."""
    resources = folder / "resources.json"
    settings = {
        **_SECURE,
        f"spark.worker.resource.{offer.resource}.amount": str(offer.slots),
        "spark.worker.resourcesFile": str(resources),
    }
    main = (
        "org.apache.spark.deploy.worker.Worker",
        *("--host", interface, "--port", "0", "--webui-port", "0"),
        *("--cores", str(offer.slots)),
        *("--memory", f"{offer.memory_bytes >> 20}m"),
        *("--work-dir", str(folder / "work")),
        master,
    )
    prepare(folder, spark.arguments(folder, (*SMALL, *flags), settings, *main))
    resources.write_text(json.dumps([_resource(offer)]), "utf-8")


def environment(spark: SparkJava, folder: Path, interface: str, secret: str) -> dict[str, str]:
    """Variables of a daemon; executors get the secret from it in the same way.

    They run what applications bring: Penstock's own settings, such as a broker's password, are
    blanked.
    """
    blanked = {name: "" for name in os.environ if name.startswith(ENVIRONMENT_PREFIX)}
    home = spark.java.home_for_launchers(folder)  # a Worker starts executors as Spark's scripts do
    return {
        **blanked,
        **spark.environment(folder, interface),
        "JAVA_HOME": str(home),
        "SPARK_SCALA_VERSION": spark.scala,  # as `load-spark-env.sh` sets it; else no executor runs
        "_SPARK_AUTH_SECRET": secret,
    }


def read_secret(file: str) -> str:
    """The secret that all processes of the cluster share.

    Raises:
        ConfigError: no file is named, it cannot be read, others can read it, or it is too short.
    """
    if not file:
        raise ConfigError("cluster.secret_file is empty; name a file with the cluster's secret")
    try:
        mode, secret = Path(file).stat().st_mode, Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cluster.secret_file: {file}: {error}") from error
    if mode & 0o077:
        raise ConfigError(
            f"cluster.secret_file: {file}: found mode {mode & 0o777:o}, expected 600 (chmod 600)"
        )
    if len(secret) < _LEAST_SECRET:
        raise ConfigError(
            f"cluster.secret_file: {file}: found {len(secret)} characters, "
            f"expected {_LEAST_SECRET} or more"
        )
    return secret


def _resource(offer: Offer) -> dict[str, object]:
    return {
        "id": {"componentName": "spark.worker", "resourceName": offer.resource},
        "addresses": [f"{offer.name}/{slot}" for slot in range(offer.slots)],
    }
