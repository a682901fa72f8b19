"""What `penstock pipeline` refuses before anything starts, and how it starts Java."""

from __future__ import annotations

import pytest
from tests.component.cli.conftest import Penstock

from penstock.pipeline.session import java_flags


def test_a_run_that_goes_on_does_not_sum_up(penstock: Penstock) -> None:
    refused = penstock("pipeline", "run", "--lake", "x", "--rollup")
    assert refused.exit_code == 2
    assert "--rollup without --catch-up" in refused.output


def test_java_gets_one_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    assert "-XX:+UseParallelGC" in java_flags()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dx=1 -XX:+UseSerialGC")
    assert not any("GC" in flag for flag in java_flags())
