"""What docs/keda.md tells people to write is accepted."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from penstock.config.load import check
from penstock.config.topology import pools
from penstock.decider.scaler.servicer import KEYS

PAGE = (Path(__file__).parents[2] / "docs" / "keda.md").read_text("utf-8")


def test_both_ends_of_the_example_fit_each_other() -> None:
    [toml], [manifests] = (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.S) for kind in BLOCKS)
    settings = check(tomllib.loads(toml))
    scaled, authentication = yaml.safe_load_all(manifests)
    [trigger] = scaled["spec"]["triggers"]
    pool = pools(settings)[trigger["metadata"]["pool"]]
    assert (pool.profile.advisor, pool.command) == (True, ())
    assert scaled["spec"]["maxReplicaCount"] == pool.profile.max_workers
    assert trigger["metadata"].keys() == {"scalerAddress", *KEYS}
    assert trigger["metadata"]["scalerAddress"].endswith(f":{settings.scaler.port}")
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]


BLOCKS = ("toml", "yaml")
