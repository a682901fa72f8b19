"""Commands that the console runs, and two chains of reasons beside each other."""

from __future__ import annotations

import tomllib

import msgspec
import pytest

from penstock.config.profiles import BY_BATCHES
from penstock.console.core import computing
from penstock.console.core.computing import NothingToTry, OtherSettings
from penstock.console.core.side_by_side import side_by_side
from penstock.decider.core.registry import BUILTIN
from penstock.events.scaling import Reason

SETTINGS = OtherSettings(
    strategy="hybrid", policies=("cooldown", "keep-busy"), max_workers=60, sla_seconds=7.5
)


def reason(rule: str, workers: int, step: str = "policy") -> Reason:
    return Reason(step=step, rule=rule, workers=workers, text=f"{rule} asks for {workers}")


def test_the_strategies_that_a_form_offers_are_those_that_ship() -> None:
    """All but those for streaming queries: a simulation knows jobs alone."""
    assert set(computing.STRATEGIES) == set(BUILTIN) - BY_BATCHES


def test_settings_are_written_as_the_command_reads_them() -> None:
    texts = computing.assignments("reports", SETTINGS)
    read = [tomllib.loads(text)["pools"]["reports"] for text in texts]
    assert {name: value for one in read for name, value in one.items()} == {
        "strategy": "hybrid",
        "policies": ["cooldown", "keep-busy"],
        "max_workers": 60,
        "sla_seconds": 7.5,
    }


def test_an_id_is_never_read_as_an_option() -> None:
    command = computing.explain_command("--help", 7, "reports", SETTINGS)
    assert command[-2:] == ("--", "--help")
    assert all(part.startswith("--") or part in ("decision", "explain") for part in command)


@pytest.mark.parametrize(
    "body",
    [
        b'{"strategy": "a b"}',
        b'{"strategy": "x\\"]\\nmax_workers=1"}',
        b'{"policies": ["--set"], "tries": 1}',
        b'{"max_workers": -1}',
        b'{"max_workers": 1e9}',
        b'{"sla_seconds": 0}',
        b'{"quantile": 1}',
    ],
)
def test_what_is_no_setting_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=OtherSettings)


def test_nothing_to_try_is_refused() -> None:
    with pytest.raises(NothingToTry, match="at least one of strategy"):
        computing.tried(OtherSettings())


def test_steps_of_both_chains_stand_in_one_row_and_others_alone() -> None:
    made = [reason("backlog", 39, "demand"), reason("cooldown", 30), reason("room", 30)]
    instead = [reason("backlog", 39, "demand"), reason("burn", 44), reason("room", 40)]
    pairs = side_by_side(made, instead)
    assert [(pair.reason.rule, pair.is_same) for pair in pairs] == [
        ("backlog", True),
        ("cooldown", False),
        ("burn", False),
        ("room", False),
    ]
    assert [pair.made is None for pair in pairs] == [False, False, True, False]
    assert [one.made for one in pairs if one.made] == made
    assert [one.instead for one in pairs if one.instead] == instead
