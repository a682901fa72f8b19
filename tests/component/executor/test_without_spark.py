"""A host without PySpark runs plain jobs; a job that asks for Spark names what to install."""

from __future__ import annotations

import gc
import sys

import pytest

from penstock.executor.spark import java
from penstock.executor.spark.java import SparkMissing, find_spark
from penstock.worker.warm_parent import warmth


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports of PySpark, and of what comes with it, fail."""
    monkeypatch.setattr(java, "pyspark_home", lambda: None)
    for name in ("pyspark", "grpc", "pandas", "pyarrow", "penstock.worker.spark.session"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(warmth, "find_spec", lambda name: None if name == "pyspark" else object())
    monkeypatch.setattr(gc, "freeze", lambda: None)


@pytest.mark.usefixtures("no_spark")
def test_a_warm_parent_imports_what_is_there() -> None:
    assert warmth.warm_up(("tests.waiting",)).failures == {}


@pytest.mark.usefixtures("no_spark")
def test_the_package_to_install_is_named() -> None:
    with pytest.raises(SparkMissing, match=r"install penstock\[spark\]"):
        find_spark()
