"""Commands that read the lake: what is missing or wrong is said in one line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.errors import Failed
from penstock.cli.installed import required
from penstock.cli.pipeline.forecast import forecast
from penstock.cli.scaling.tune import nothing_came, tune
from penstock.cli.session import Session


def test_what_is_not_installed_is_named() -> None:
    with (
        pytest.raises(Failed, match=r"penstock-pipeline needs the package pyarrow; install"),
        required("penstock-pipeline"),
    ):
        raise ModuleNotFoundError(name="pyarrow")
    with (
        pytest.raises(Failed, match=r"needs the package penstock-nowhere; install it"),
        required("penstock-nowhere"),
    ):
        importlib.import_module("penstock.nowhere.forecasts")


def test_a_command_names_the_package_that_it_needs(penstock, monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "penstock.cli.scaling.replay", raising=False)
    for module in [name for name in sys.modules if name.startswith("penstock.decider")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "penstock.decider", None)
    refused = penstock("replay")
    assert refused.exit_code == 1
    assert "needs the package penstock-decider; install it" in refused.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--step", "7m"], "found '7m', expected minutes that divide an hour"),
        (["--zone", "Mars/North"], "found 'Mars/North', expected a time zone"),
        (["--special-day", "Xmas"], "found 'Xmas', expected a date like 2026-12-25"),
        (["--weeks", "0"], "0"),
    ],
)
def test_a_forecast_that_cannot_be_is_refused(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(forecast, ["--lake", "x", *arguments], obj=Session())
    assert done.exit_code == 2
    assert said in done.output


def test_settings_that_cannot_be_are_refused_before_anything_starts(tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text("[pools.a]\n")
    session = Session(config_file=str(config))
    for choice, said in (("min_workers", "expected NAME=VALUE"), ("min_wrokers=1", "min_wrokers")):
        done = CliRunner().invoke(tune, ["--lake", "x", "--try", choice], obj=session)
        assert done.exit_code != 0
        assert said in done.output + str(done.exception)
    done = CliRunner().invoke(tune, ["--lake", "x", "--pool", "b"], obj=session)
    assert "found no pool 'b' in the settings" in done.output


def test_a_first_day_is_told_from_a_lake_without_jobs() -> None:
    text = nothing_came()
    assert "whole days (UTC) up to" in text
    assert "jobs of today count from tomorrow on" in text
