"""Settings of strategies: read as declared, laid over the profile's, refused in one sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.decider.given import inputs, pool, snapshot, state

from penstock.config import ConfigError
from penstock.config.load import check as settings_of
from penstock.config.profiles import BY_BATCHES
from penstock.config.topology import pools
from penstock.decider.core import options, registry
from penstock.decider.core.decide import decide
from penstock.decider.core.strategy import Demand


class Mine:
    """A user's strategy with a setting."""

    name = "mine"

    class options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        plus: int = 1

    def demand(self, inputs):
        return Demand(workers=inputs.snapshot.waiting + inputs.options.plus)


STRATEGIES = registry.with_installed({"mine": Mine()})


def pools_of(profiles: Any = None, **tables: Any):
    return pools(settings_of({"pools": tables, "profiles": profiles or {}}))


def options_of(strategy: str, **table: Any):
    return pools_of(mail={"strategy": strategy, "options": {strategy: table}})


def test_a_strategy_gets_its_own_settings():
    one = pool(strategy="mine", options={"mine": {"plus": 4}, "queue_size": {"up_step": 9}})
    given = inputs([one], [snapshot(waiting=3)], strategies=STRATEGIES)
    assert decide(state(), given, 1_000_000.0).decisions[0].target == 7


def test_what_is_not_set_is_the_default():
    given = inputs([pool(strategy="mine")], [snapshot(waiting=3)], strategies=STRATEGIES)
    assert decide(state(), given, 1_000_000.0).decisions[0].target == 4


@pytest.mark.parametrize("most", [2, 50_000])
def test_each_table_is_read_as_what_it_says_however_many_come_and_go(most, monkeypatch):
    monkeypatch.setattr(options, "_MOST_READ", most)
    takers = [Mine(), Mine()]
    for number in range(100):  # a table that is gone leaves its place in memory to the next one
        read = [options.read(taker, {"plus": number}) for taker in takers]
        assert read == [Mine.options(plus=number)] * 2


def test_a_pools_settings_go_over_its_profiles_one_by_one():
    found = pools_of(
        {"paced": {"options": {"queue_size": {"up_step": 5, "down_step": 4}, "mine": {"plus": 2}}}},
        mail={"profile": "paced", "options": {"queue_size": {"up_step": 6}}},
    )
    assert found["mail"].profile.options == {
        "queue_size": {"up_step": 6, "down_step": 4},
        "mine": {"plus": 2},
    }


@pytest.mark.parametrize("name", sorted(registry.BUILTIN.keys() - BY_BATCHES))
def test_each_that_ships_needs_no_settings(name):
    registry.check(pools_of(mail={"strategy": name}), registry.BUILTIN)


REFUSED = [
    (
        options_of("queue_size", high_mark=5),
        "[pools.mail.options.queue_size] unknown setting 'high_mark'; "
        "did you mean 'high_watermark'?",
    ),
    (
        options_of("queue_size", high_watermark="many"),
        "pools.mail.options.queue_size.high_watermark: "
        'expected a whole number, found the text "many"',
    ),
    (
        options_of("queue_size", high_watermark=10),
        "pools.mail.options.queue_size: found low_watermark 100 above high_watermark 10",
    ),
    (
        options_of("jobs_per_worker", per_worker=0),
        "pools.mail.options.jobs_per_worker.per_worker: expected a number > 0, found 0",
    ),
    (
        options_of("wait_time", high_seconds=3, low_seconds=4),
        "pools.mail.options.wait_time: found low_seconds 4 above high_seconds 3",
    ),
    (
        options_of("schedule", time_zone="Europe/Kopenhagen"),
        "pools.mail.options.schedule: found time_zone 'Europe/Kopenhagen', expected an IANA name",
    ),
    (options_of("schedule", time_zone="../../etc/passwd"), "expected an IANA name"),
    (
        options_of("schedule", peak_hours=[9, 24]),
        "pools.mail.options.schedule.peak_hours[1]: expected a whole number <= 23, found 24",
    ),
    (
        options_of("schedule", peak_hours=[22]),
        "pools.mail.options.schedule: found hour 22 in peak_hours and in off_peak_hours",
    ),
    (
        options_of("schedule", weekend=["sunday", "caturday"]),
        "pools.mail.options.schedule.weekend[1]: expected one of 'friday', 'monday'",
    ),
    (
        options_of("schedule", calendars={"a": {"workers": 1, "dates": []}, "b": {"workers": 1}}),
        "pools.mail.options.schedule.calendars.b: the setting 'dates' is missing",
    ),
    (
        options_of("schedule", calendars={"b": {"workers": 1, "dates": ["tomorrow"]}}),
        "pools.mail.options.schedule.calendars.b.dates[0]: invalid RFC3339 encoded date, "
        "found 'tomorrow'",
    ),
    (
        options_of("combined", weights={"wait_tiem": 1}),
        "pools.mail.options.combined: weights of unknown strategy 'wait_tiem'; "
        "did you mean 'wait_time'?",
    ),
    (
        options_of("combined", weights={"combined": 1}),
        "weights of unknown strategy 'combined'",
    ),
    (
        options_of("combined", weights={"fixed": -1}),
        "pools.mail.options.combined.weights.fixed: expected a number > 0, found -1",
    ),
    (options_of("combined", weights={}), "pools.mail.options.combined: found no weights"),
    (
        options_of("hybrid", threshold=1),
        "pools.mail.options.hybrid: found 'threshold', but it takes no settings",
    ),
    (
        pools_of(mail={"options": {"que_size": {}}}),
        "pools.mail.options.que_size: unknown strategy; did you mean 'queue_size'?",
    ),
    (
        pools_of(mail={"strategy": "hybrid", "options": {"queue_size": {"up_step": 0}}}),
        "pools.mail.options.queue_size.up_step: expected a whole number >= 1, found 0",
    ),
    (
        options_of("mine", plsu=2),
        "[pools.mail.options.mine] unknown setting 'plsu'; did you mean 'plus'?",
    ),
]


@pytest.mark.parametrize(("found", "said"), REFUSED, ids=[said[:60] for _, said in REFUSED])
def test_what_does_not_fit_is_refused_at_the_start(found, said):
    with pytest.raises(ConfigError) as refused:
        registry.check(found, STRATEGIES)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_rule_that_raises_what_it_should_not_is_a_refusal_too():
    class Moody:
        class options(msgspec.Struct):
            place: str = "here"

            def __post_init__(self):
                {"here": 1}[self.place]

        def demand(self, inputs):
            return Demand(workers=1)

    found = pools_of(mail={"options": {"moody": {"place": "there"}}})
    with pytest.raises(ConfigError, match=r"pools.mail.options.moody: refused with KeyError"):
        registry.check(found, registry.with_installed({"moody": Moody()}))


def test_dates_may_stand_in_toml_as_they_are(tmp_path):
    from penstock.config import load

    path = tmp_path / "penstock.toml"
    path.write_text(
        '[pools.mail]\nstrategy = "schedule"\n'
        "[pools.mail.options.schedule.calendars.holidays]\nworkers = 0\n"
        'dates = [2026-12-24, "2026-12-25"]\n'
    )
    registry.check(pools(load(path)), STRATEGIES)


def test_a_variable_reaches_a_setting(tmp_path):
    from penstock.config import load

    variable = "PENSTOCK_POOLS__MAIL__OPTIONS__SCHEDULE__TIME_ZONE"
    found = pools(load(environment={variable: "Asia/Tokyo"}))
    assert found["mail"].profile.options == {"schedule": {"time_zone": "Asia/Tokyo"}}
