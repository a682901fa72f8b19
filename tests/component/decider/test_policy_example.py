"""The page about policies: its example is installed as a reader would install it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.unit.decider.given import pool
from tests.unit.decider.playing import play, told

from penstock.decider import plugins

PAGE = Path(__file__).parents[3] / "docs" / "policies.md"


def test_the_example_holds_and_tells(tmp_path, monkeypatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    (example,) = [block for block in blocks if "Policy(" in block]
    (tmp_path / "my_package.py").write_text(example)
    info = tmp_path / "my-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[penstock.policies]\nby-tens = my_package:BY_TENS\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_package", raising=False)
    policies = plugins.policies()
    rounds = play(
        pool(strategy="wants", policies=("by-tens",)),
        [(0, 25), (1, 25), (2, 25)],
        policies=policies,
    )
    assert [each.target for each in rounds] == [10, 20, 25]
    assert [at for at, _ in told(rounds, "PolicySpoke")] == [0]
