"""The generated pages: nothing declared is left without a meaning."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from penstock.config import settings as declared

GENERATE = Path(__file__).parents[3] / "docs" / "generate.py"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", GENERATE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SECTIONS = (
    declared.Nats,
    declared.Streams,
    declared.Jobs,
    declared.Host,
    declared.Metrics,
    declared.Decider,
    declared.Spark,
    declared.Telemetry,
    declared.Profile,
)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda kind: kind.__name__)
def test_every_setting_has_a_meaning(generate, section) -> None:
    meanings = generate.meanings_of(section)
    assert [f.name for f in msgspec.structs.fields(section) if not meanings.get(f.name)] == []


def test_an_outdated_page_is_reported(generate, tmp_path, capsys) -> None:
    page = tmp_path / "events.md"
    page.write_text("old\n")
    assert generate.check({page: "new\n"}) == 1
    assert "docs/events.md is out of date; run: make docs" in capsys.readouterr().out
    page.write_text("new\n")
    assert generate.check({page: "new\n"}) == 0
