"""The Spark Master of `penstock up`, where the settings ask for a cluster on this machine."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from msgspec.structs import replace

from penstock.config import Settings
from penstock.runtime.interpreter import module_command
from penstock.runtime.private_folders import remove_private
from penstock.spark.master import address

_FOLDER = "spark-master"
_SECRET = "cluster.secret"  # noqa: S105 - a file's name


def is_local(settings: Settings) -> bool:
    """Whether a pool's workers belong to a cluster that `penstock up` starts."""
    spark = any(table.kind == "spark" for table in settings.pools.values())
    return spark and settings.cluster.master == "local"


def with_secret(settings: Settings, folder: Path) -> Settings:
    """The settings with a secret, made and kept in ``folder``, where a local cluster has none."""
    if not is_local(settings) or settings.cluster.secret_file:
        return settings
    file = folder / _SECRET
    if not file.exists():
        half = os.open(file.with_suffix(".new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(half, "w") as out:
            out.write(secrets.token_urlsafe(32))
        file.with_suffix(".new").replace(file)
    return replace(settings, cluster=replace(settings.cluster, secret_file=str(file.resolve())))


def about(settings: Settings) -> str:
    """The address and secret for applications; empty without a local cluster."""
    if not is_local(settings):
        return ""
    cluster = settings.cluster
    return (
        f"Spark Master at {address(cluster)}; applications need the secret in {cluster.secret_file}"
    )


def forget(settings: Settings) -> None:
    """Removes the state of an earlier run's Master."""
    run_dir = Path(settings.host.run_dir)
    remove_private(run_dir.parent, run_dir.name, _FOLDER)


def command(settings: Settings) -> list[str]:
    """The command that starts the Master; a restarted one recovers the state of the last one."""
    cluster = settings.cluster
    return [
        *module_command("penstock.executor.spark.master"),
        *("--folder", str(_folder(settings))),
        *("--secret-file", cluster.secret_file),
        *("--interface", cluster.interface),
        *("--port", str(cluster.port), "--ui-port", str(cluster.ui_port)),
    ]


def _folder(settings: Settings) -> Path:
    return Path(settings.host.run_dir) / _FOLDER
