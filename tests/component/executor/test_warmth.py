"""A warm parent imports Spark's libraries where jobs may ask for them, and only there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLAIN = "from penstock.jobs import job\n\n@job\ndef count() -> int:\n    return 1\n"
ASKING = PLAIN.replace("count()", "count(context: Context)").replace("1", "context.spark.x")
ASKING = f"from penstock.jobs import Context\n{ASKING}"
PROGRAM = """
import sys
from penstock.worker.warm_parent import warmth
failures = warmth.warm_up(("shop",)).failures
print(failures, "pyspark.sql.connect.session" in sys.modules)
"""


@pytest.mark.parametrize(("source", "is_imported"), [(PLAIN, False), (ASKING, True)])
def test_spark_is_imported_for_jobs_that_mention_it(
    tmp_path: Path, source: str, is_imported: bool
) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("import shop.orders\n")
    (tmp_path / "shop" / "orders.py").write_text(source)
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{{}} {is_imported}"
