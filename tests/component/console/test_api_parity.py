"""The page of endpoints is that of the router: each designed endpoint once, none unlisted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_names_every_endpoint_of_the_router(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    import console_parity  # type: ignore[import-not-found]

    listed = [
        one for text in console_parity.DESIGN.values() for one in console_parity.designed(text)
    ]
    shapes = [(method, console_parity.shape(path)) for method, path in listed]
    assert len(shapes) == len(set(shapes))
    built = console_parity.endpoints()
    page = (DOCS / "console-api.md").read_text("utf-8")
    rows = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    on_page = {(row.split(" ")[0], console_parity.shape(row.split(" ")[1])) for row in rows}
    assert built.keys() <= on_page
    assert set(shapes) <= on_page
    assert all(scope for _, scope, _ in built.values())
    del sys.modules["console_parity"]
