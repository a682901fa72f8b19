"""Every command of `penstock` with the keys that people have, on an installation that runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.guarded_site import Site, running_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("guarded")) as site:
        yield site


def test_an_operator_sees_the_pools(site: Site, tmp_path: Path) -> None:
    rows = site.shell("operator", tmp_path).json("pool", "ls")
    assert [row["pool"] for row in rows] == ["work"]
    assert site.broker.violations() == []
