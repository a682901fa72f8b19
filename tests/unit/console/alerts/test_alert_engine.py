"""The engine: what holds for all rules, readings and times, and each of its promises by example."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.console.core.alerts.engine import acknowledge, redirect, resolve, step
from penstock.console.core.alerts.notifying import CAP_MESSAGES
from penstock.console.core.alerts.rules import (
    Burn,
    Configuration,
    Escalation,
    Matcher,
    NoLeader,
    Rule,
    Silence,
    Window,
)
from penstock.console.core.alerts.states import (
    Alert,
    Effects,
    Notification,
    Observation,
    Reading,
    States,
)

T0 = 1_000_020.0
CHANNELS = frozenset({"oncall", "mail"})


def rule(name: str = "r", **fields: Any) -> Rule:
    known = {"for_seconds": 60, "keep_seconds": 120, "channels": ("oncall",), "repeat_seconds": 0}
    return Rule(id=name, name=name, condition=Burn(), **{**known, **fields})


def config(*rules: Rule, **fields: Any) -> Configuration:
    return Configuration(rules={one.id: one for one in rules}, channels=CHANNELS, **fields)


def met(*pools: str, of: str = "r") -> dict[str, Reading]:
    seen = tuple(
        Observation(labels=(("pool", pool),), is_met=True, text=f"{pool} is late.")
        for pool in pools
    )
    return {of: Reading(observations=seen)}


UNKNOWN = {"r": Reading(is_known=False)}


class Story:
    """Steps after each other, and the messages they made."""

    def __init__(self, configuration: Configuration) -> None:
        self.config, self.states = configuration, States(at=T0)
        self.sent: list[Notification] = []
        self.effects = Effects()

    def at(self, seconds: float, readings: dict[str, Reading]) -> list[str]:
        """What was sent by a step, as ``channel: kind pool, …``."""
        self.states, self.effects = step(self.config, self.states, readings, T0 + seconds)
        self.sent += self.effects.notifications
        return [words(one) for one in self.effects.notifications]

    @property
    def phases(self) -> dict[str, str]:
        return {one.labels.get("pool", ""): one.phase for one in self.states.alerts.values()}

    def alert(self, pool: str = "a") -> Alert:
        alerts = self.states.alerts.values()
        return next(one for one in alerts if one.labels.get("pool") == pool)

    def incident(self, pool: str = "a") -> str:
        return self.alert(pool).incident


def words(sent: Notification) -> str:
    entries = ", ".join(f"{one.kind} {one.labels.get('pool', '-')}" for one in sent.entries)
    return f"{sent.channel}: {entries}"


def test_an_alert_fires_after_its_time_is_kept_and_resolves() -> None:
    story = Story(config(rule()))
    assert story.at(0, met("a")) == []
    assert story.phases == {"a": "pending"}
    assert story.at(59, met("a")) == []
    assert story.at(61, met("a")) == ["oncall: firing a"]
    assert story.sent[0].at == T0 + 60
    assert story.at(100, met()) == []
    assert story.phases == {"a": "keep"}
    assert story.at(150, met("a")) == []  # the same incident goes on
    assert story.at(200, met()) == []
    assert story.at(320, met()) == ["oncall: resolved a"]
    assert story.sent[0].entries[0].incident == story.sent[1].entries[0].incident


def test_what_ends_before_its_time_says_nothing() -> None:
    story = Story(config(rule()))
    story.at(0, met("a"))
    assert story.at(59, met()) == []
    assert story.at(500, met()) == []
    assert story.states.alerts == {} or story.phases == {"a": "inactive"}


def test_no_data_freezes_pending_firing_and_keep() -> None:
    story = Story(config(rule()))
    story.at(0, met("a"))
    story.at(30, UNKNOWN)
    assert story.at(1000, UNKNOWN) == []
    assert story.alert().frozen_since == T0 + 30
    assert story.at(1000, met("a")) == []  # 30 s are left
    assert story.at(1031, met("a")) == ["oncall: firing a"]
    story.at(1040, UNKNOWN)
    assert story.at(9000, UNKNOWN) == []
    story.at(9000, met())
    story.at(9010, UNKNOWN)
    assert story.at(20_000, UNKNOWN) == []
    assert story.at(20_000, met()) == []
    assert story.at(20_111, met()) == ["oncall: resolved a"]


def test_alerts_of_one_instant_come_in_one_message() -> None:
    story = Story(config(rule()))
    story.at(0, met("a", "b"))
    assert story.at(60, met("a", "b")) == ["oncall: firing a, firing b"] or (
        story.at(61, met("a", "b")) == ["oncall: firing a, firing b"]
    )


def test_further_ones_of_a_group_wait_for_its_next_message() -> None:
    story = Story(config(rule(for_seconds=0)))
    assert story.at(0, met("a")) == ["oncall: firing a"]
    assert story.at(5, met("a", "b")) == []
    assert story.at(10, met("a", "b", "c")) == []
    assert story.at(31, met("a", "b", "c")) == ["oncall: firing b, firing c"]
    assert story.sent[-1].at == T0 + 30


def test_labels_to_group_by_split_messages() -> None:
    story = Story(config(rule(for_seconds=0, group_by=("pool",))))
    assert story.at(0, met("a", "b")) == ["oncall: firing a", "oncall: firing b"]


def leaderless(is_met: bool) -> dict[str, Reading]:
    return {"leader": Reading(observations=(Observation(labels=(), is_met=is_met),))}


def test_no_leader_holds_back_what_follows_from_it() -> None:
    leader = Rule(
        id="leader", name="leader", condition=NoLeader(), for_seconds=0, keep_seconds=0,
        channels=("oncall",), repeat_seconds=0,
    )  # fmt: skip
    story = Story(config(leader, rule(for_seconds=0, held_back_by=("leader",))))
    assert story.at(0, met("a") | leaderless(True)) == ["oncall: firing -"]
    assert story.at(50, met("a") | leaderless(True)) == []
    assert story.at(100, met("a") | leaderless(False)) == [
        "oncall: resolved -",
        "oncall: firing a",
    ]


def test_one_that_was_held_back_until_it_ended_sends_no_resolved() -> None:
    leader = Rule(
        id="leader", name="leader", condition=NoLeader(), for_seconds=0, keep_seconds=0,
        channels=("mail",), repeat_seconds=0,
    )  # fmt: skip
    story = Story(config(leader, rule(for_seconds=0, keep_seconds=0, held_back_by=("leader",))))
    story.at(0, met("a") | leaderless(True))
    story.at(50, met() | leaderless(True))
    assert story.at(100, met() | leaderless(False)) == ["mail: resolved -"]


def silence(begins: float, ends: float, glob: str = "a") -> Silence:
    return Silence(
        id="s1", matchers=(Matcher(label="pool", glob=glob),), author="ada", reason="moving",
        begins=T0 + begins, ends=T0 + ends,
    )  # fmt: skip


def test_a_silence_holds_for_what_it_fits_until_its_end() -> None:
    story = Story(config(rule(for_seconds=0), silences=(silence(0, 100),)))
    assert story.at(1, met("a", "b")) == ["oncall: firing b"]
    assert story.at(200, met("a", "b")) == ["oncall: firing a"]
    assert story.sent[-1].at == T0 + 100


def test_who_got_the_firing_message_gets_the_resolved_one_through_a_silence() -> None:
    story = Story(config(rule(for_seconds=0, keep_seconds=0), silences=(silence(10, 100),)))
    story.at(0, met("a"))
    assert story.at(50, met()) == ["oncall: resolved a"]


def test_a_maintenance_window_returns() -> None:
    window = Window(
        id="w", matchers=(Matcher(label="rule", glob="*"),), author="ada", reason="nightly load",
        begins=T0, lasts_seconds=600, every_seconds=3600,
    )  # fmt: skip
    story = Story(config(rule(for_seconds=0, keep_seconds=0), windows=(window,)))
    assert story.at(0, met("a")) == []
    assert story.at(300, met()) == []
    assert story.at(3700, met("a")) == []
    assert story.at(4300, met("a")) == ["oncall: firing a"]
    assert story.sent[-1].at == T0 + 4200


def test_who_does_not_acknowledge_is_followed_by_the_next_level() -> None:
    levels = (Escalation(after_seconds=600, channels=("mail",)),)
    story = Story(config(rule(for_seconds=0, escalations=levels, repeat_seconds=3600)))
    story.at(0, met("a"))
    assert story.at(601, met("a")) == ["mail: escalated a"]
    assert story.at(3601, met("a")) == ["oncall: repeat a"]
    story.states = acknowledge(story.states, story.incident(), "ada", T0 + 3700)
    assert story.at(20_000, met("a")) == []
    story.at(20_000, met())
    assert story.at(20_130, met()) == ["mail: resolved a", "oncall: resolved a"]


def test_one_that_is_acknowledged_is_not_escalated() -> None:
    levels = (Escalation(after_seconds=600, channels=("mail",)),)
    story = Story(config(rule(for_seconds=0, escalations=levels)))
    story.at(0, met("a"))
    story.states = acknowledge(story.states, story.incident(), "ada", T0 + 10)
    assert story.at(5000, met("a")) == []


def test_one_that_a_person_resolved_fires_again_only_after_it_ended() -> None:
    story = Story(config(rule(for_seconds=0)))
    story.at(0, met("a"))
    story.states, changes = resolve(story.states, story.incident(), "ada", T0 + 10)
    assert [(one.kind, one.alert.resolved_by) for one in changes] == [("resolved", "ada")]
    assert story.at(11, met("a")) == []  # its group waits
    assert story.at(31, met("a")) == ["oncall: resolved a"]
    assert story.at(500, met("a")) == []
    story.at(600, met())
    assert story.at(700, met("a")) == ["oncall: firing a"]


def test_one_that_comes_and_goes_says_so_once() -> None:
    story = Story(config(rule(for_seconds=0, keep_seconds=0), group_seconds=0))
    for minute in range(30):
        story.at(60 * minute, met("a") if minute % 2 == 0 else met())
    sent = [one.entries[0].kind for one in story.sent]
    assert sent[-1] == "flapping"
    assert sent.count("flapping") == 1
    assert len(sent) == 11
    story.at(60 * 60, met())
    assert story.sent[-1].entries[0].kind == "resolved"


def test_beyond_the_cap_comes_one_digest() -> None:
    story = Story(config(rule(for_seconds=0, group_by=("pool",)), group_seconds=0))
    pools = [f"p{number}" for number in range(30)]
    assert len(story.at(0, met(*pools))) == CAP_MESSAGES
    assert story.at(599, met(*pools)) == []
    assert len(story.at(601, met(*pools))) == 1
    (digest,) = story.effects.notifications
    assert digest.is_digest
    assert len(digest.entries) == 10


def test_a_message_that_reached_its_fallback_is_resolved_there() -> None:
    story = Story(config(rule(for_seconds=0, keep_seconds=0)))
    story.at(0, met("a"))
    story.states = redirect(story.states, "oncall", "mail", frozenset({story.incident()}))
    assert story.at(30, met("a")) == []  # the fallback has it
    assert story.at(60, met()) == ["mail: resolved a"]
    story.at(120, met("a"))
    story.states = redirect(story.states, "oncall", "", frozenset({story.incident()}))
    assert story.at(200, met()) == []


def test_an_end_that_waits_follows_its_firing_message_or_is_dropped() -> None:
    for fallback, expected in (("mail", ["mail: resolved a"]), ("", [])):
        story = Story(config(rule(for_seconds=0, keep_seconds=0)))
        story.at(0, met("a", "b"))
        incident = story.incident()
        assert story.at(10, met("b")) == []  # its group waits
        story.states = redirect(story.states, "oncall", fallback, frozenset({incident}))
        assert story.at(30, met("b")) == expected
        assert story.at(60, met()) == ["oncall: resolved b"]


def test_one_digest_goes_where_its_firing_messages_went() -> None:
    story = Story(config(rule(for_seconds=0, keep_seconds=0, group_by=("pool",)), group_seconds=0))
    pools = [f"p{number}" for number in range(CAP_MESSAGES)]
    story.at(0, met(*pools))
    incident = story.incident("p0")
    assert story.at(10, met(*pools[1:])) == []  # the cap is reached
    story.states = redirect(story.states, "oncall", "mail", frozenset({incident}))
    assert story.at(11, met(*pools[1:])) == ["mail: resolved p0"]


def test_a_person_acts_on_one_incident_not_on_the_next() -> None:
    story = Story(config(rule(for_seconds=0, keep_seconds=0)))
    story.at(0, met("a"))
    earlier = story.incident()
    story.at(60, met())
    story.at(120, met("a"))
    assert acknowledge(story.states, earlier, "ada", T0 + 121) == story.states
    assert resolve(story.states, earlier, "ada", T0 + 121) == (story.states, ())


def test_a_rule_that_is_switched_off_resolves_its_alerts() -> None:
    story = Story(config(rule(for_seconds=0)))
    story.at(0, met("a"))
    story.config = config(rule(is_enabled=False))
    assert story.at(60, {}) == ["oncall: resolved a"]


# --- for all readings and times -------------------------------------------------------------------
_reading = st.one_of(
    st.just(UNKNOWN),
    st.sets(st.sampled_from("ab")).map(lambda pools: met(*pools)),
    st.sampled_from("ab").map(
        lambda pool: {
            "r": Reading(observations=(Observation(labels=(("pool", pool),), is_met=None),))
        }
    ),
)
_log = st.lists(st.tuples(st.integers(1, 400), _reading), min_size=1, max_size=25)
_rule = st.builds(
    rule,
    for_seconds=st.sampled_from([0, 30, 60]),
    keep_seconds=st.sampled_from([0, 45, 120]),
    repeat_seconds=st.sampled_from([0, 300]),
    escalations=st.sampled_from([(), (Escalation(after_seconds=100, channels=("mail",)),)]),
)
_config = st.builds(
    lambda one, held: config(one, silences=held),
    _rule,
    st.sampled_from([(), (silence(50, 500),), (silence(0, 90, "*"),)]),
)


def run(
    configuration: Configuration, log: list[tuple[int, dict[str, Reading]]], cuts: list[int]
) -> tuple[States, list[Notification], list[Any]]:
    """The readings of a log, with further steps of the readings that hold at each of ``cuts``."""
    states, now = States(at=T0), 0
    sent: list[Notification] = []
    changes: list[Any] = []
    readings: dict[str, Reading] = UNKNOWN
    end = sum(pause for pause, _ in log) + 3000
    times = []
    for pause, reading in log:
        now += pause
        times.append((now, reading))
    times.append((end, times[-1][1]))
    between = sorted({cut % end for cut in cuts} - {at for at, _ in times})
    for at, reading in times:
        while between and between[0] < at:
            states, effects = step(configuration, states, readings, T0 + between.pop(0))
            sent += effects.notifications
            changes += effects.changes
        readings = reading
        states, effects = step(configuration, states, readings, T0 + at)
        sent += effects.notifications
        changes += effects.changes
    return states, sent, changes


@settings(max_examples=150, deadline=None)
@given(_config, _log, st.lists(st.integers(0, 12_000), max_size=30))
def test_it_does_not_matter_how_often_steps_are_made(
    configuration: Configuration, log: list[Any], cuts: list[int]
) -> None:
    seldom, often = run(configuration, log, []), run(configuration, log, cuts)
    assert [msgspec.to_builtins(one) for one in seldom[1]] == [
        msgspec.to_builtins(one) for one in often[1]
    ]
    assert [(one.kind, one.at) for one in seldom[2]] == [(one.kind, one.at) for one in often[2]]
    assert run(configuration, log, cuts) == often  # and it is the same each time


@settings(max_examples=150, deadline=None)
@given(_config, _log)
def test_each_channel_gets_firing_before_resolved(
    configuration: Configuration, log: list[Any]
) -> None:
    _, sent, _ = run(configuration, log, [])
    open_incidents: set[tuple[str, str]] = set()
    for message in sent:
        for entry in message.entries:
            key = (message.channel, entry.incident)
            if entry.kind == "flapping":
                open_incidents.add(key)
            elif entry.kind in ("firing", "escalated"):
                assert key not in open_incidents
                open_incidents.add(key)
            elif entry.kind == "resolved":
                assert key in open_incidents
                open_incidents.remove(key)
            else:
                assert key in open_incidents
    assert len({one.id for one in sent}) == len(sent)


@settings(max_examples=100, deadline=None)
@given(_config, _log, st.integers(1, 100_000))
def test_without_data_nothing_fires_or_resolves(
    configuration: Configuration, log: list[Any], seconds: int
) -> None:
    states, _, _ = run(configuration, log, [])
    at = states.at
    states, _ = step(configuration, states, UNKNOWN, at + 1)
    before = {key: one.phase for key, one in states.alerts.items()}
    states, effects = step(configuration, states, UNKNOWN, at + 1 + seconds)
    assert {change.kind for change in effects.changes} <= {"settled"}
    assert {key: one.phase for key, one in states.alerts.items() if key in before} == {
        key: phase for key, phase in before.items() if key in states.alerts
    }
