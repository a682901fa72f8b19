"""What the pages on KEDA tell people to write is accepted, and fits together."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from penstock.config import Settings
from penstock.config.load import check
from penstock.config.topology import pools
from penstock.decider.scaler.servicer import KEYS

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> tuple[Settings, list[Any]]:
    """The settings and the manifests of a page, one block of each."""
    text = (DOCS / page).read_text("utf-8")
    [toml], [manifests] = (re.findall(rf"```{kind}\n(.*?)```", text, re.S) for kind in KINDS)
    return check(tomllib.loads(toml)), list(yaml.safe_load_all(manifests))


KINDS = ("toml", "yaml")


def test_both_ends_of_the_external_scaler_fit_each_other() -> None:
    settings, (scaled, authentication) = blocks("keda.md")
    [trigger] = scaled["spec"]["triggers"]
    pool = pools(settings)[trigger["metadata"]["pool"]]
    assert (pool.profile.advisor, pool.command) == (True, ())
    assert scaled["spec"]["maxReplicaCount"] == pool.profile.max_workers
    assert trigger["metadata"].keys() == {"scalerAddress", *KEYS}
    assert trigger["metadata"]["scalerAddress"].endswith(f":{settings.scaler.port}")
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]


def test_a_scaled_object_and_the_pool_that_takes_its_place_agree() -> None:
    settings, [scaled] = blocks("from-keda.md")
    [pool], [trigger] = pools(settings).values(), scaled["spec"]["triggers"]
    [source] = settings.sources.values()
    assert pool.source_queues == (trigger["metadata"]["listName"],)
    assert trigger["metadata"]["address"] in source.url
    spec = scaled["spec"]
    bounds = (spec["minReplicaCount"], spec["maxReplicaCount"])
    assert bounds == (pool.profile.min_workers, pool.profile.max_workers)
