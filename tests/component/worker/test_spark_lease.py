"""Given a job that asks for Spark, when no server runs, then its lines say what it awaits."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Never

import pytest

from penstock.config.spark import Spark
from penstock.worker.spark.lease import SparkLease, SparkUnavailable, SupervisorLine


def test_the_wait_for_spark_is_logged_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: SupervisorLine) -> Never:
        assert "waiting for this host's Spark" in caplog.text
        raise SparkUnavailable("not today")

    monkeypatch.setattr(SupervisorLine, "ask", refuse)
    with caplog.at_level(logging.INFO), pytest.raises(SparkUnavailable, match="not today"):
        SparkLease(tmp_path, Spark()).session("a", 1)
