"""What a stream that exists takes over from the settings."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.bus import streams
from penstock.config.load import check
from penstock.events.subjects import Subjects

WIDER = {streams.CONFIGURED_BYTES: "14000000"}


def stream(name: str, **settings: Any) -> dict[str, Any]:
    made = streams.streams(check({"streams": settings}), Subjects())
    return next(config for config in made if config["name"] == name)


@pytest.mark.parametrize("name", ["EVENTS", "SNAPSHOTS"])
def test_the_log_and_the_snapshots_are_compressed_unless_the_settings_say_no(name: str) -> None:
    assert stream(name)["compression"] == "s2"
    assert stream(name, compression="none")["compression"] == "none"


@pytest.mark.parametrize("stored", [{}, {"compression": "none"}])
def test_a_stream_of_an_earlier_version_takes_compression_over(stored: dict[str, Any]) -> None:
    stored = {"discard": "new", "max_bytes": 5_000_000_000, **stored}
    assert streams.changes(stored, stream("EVENTS")) == {"compression": "s2"}
    assert streams.changes(stored, stream("EVENTS", compression="none")) == {}


def test_the_broker_is_kept_from_discarding_events_of_an_earlier_version() -> None:
    stored = {"compression": "s2", "discard": "old", "max_bytes": 4_000_000_000, "max_age": 7}
    assert streams.changes(stored, stream("EVENTS"), 4_000_000_000) == {
        "discard": "new", "max_bytes": 5_000_000_000, "max_age": 0,
    }  # fmt: skip


def test_a_bound_below_what_the_log_holds_waits() -> None:
    stored = {"compression": "s2", "discard": "new", "max_bytes": 50_000_000}
    wanted = stream("EVENTS", events_max_bytes=10_000_000)
    assert streams.changes(stored, wanted, 40_000_000) == {"metadata": WIDER}
    assert streams.changes(stored, wanted, 5_000_000) == {"max_bytes": 14_000_000}
    as_wanted = {**stored, "max_bytes": 14_000_000}
    assert streams.changes(as_wanted, wanted, 13_900_000) == {}


def test_a_wider_log_keeps_the_size_of_the_settings_until_it_is_as_wide_again() -> None:
    stored = {
        "compression": "s2", "discard": "new", "max_bytes": 14_000_000, "metadata": {"of": "others"}
    }  # fmt: skip
    settings = check({"streams": {"events_max_bytes": 10_000_000}})
    [wider] = [s for s in streams.streams(settings, Subjects(), 4_000_000) if s["name"] == "EVENTS"]
    wanted = stream("EVENTS", events_max_bytes=10_000_000)
    # when: it gets more room
    changed = streams.changes(stored, wider, 13_900_000)
    assert changed == {"max_bytes": 18_000_000, "metadata": {"of": "others", **WIDER}}
    widened = {**stored, **changed}
    assert streams.configured_bytes(widened) == 14_000_000
    # then: while it holds too much to be as narrow again, the mark stays; then it goes
    assert streams.changes(widened, wanted, 17_000_000) == {}
    narrowed = streams.changes(widened, wanted, 5_000_000)
    assert narrowed == {"max_bytes": 14_000_000, "metadata": {"of": "others"}}
    # an earlier version's orchestrator knows the bound alone
    assert streams.configured_bytes({**widened, "max_bytes": 9_000_000}) == 9_000_000


def test_what_is_as_wanted_stays() -> None:
    stored = {"compression": "s2", "discard": "new", "max_bytes": 5_000_000_000, "other": 7}
    assert streams.changes(stored, stream("EVENTS")) == {}
    assert streams.changes({"max_consumers": streams.MAX_QUEUES}, stream("JOBS")) == {}


def test_idle_followers_end_on_streams_of_an_earlier_version_too() -> None:
    wanted = streams.complete(stream("STATE"), 1)
    changed = streams.changes({}, wanted)
    assert changed == {"consumer_limits": {"inactive_threshold": 120_000_000_000}}
    assert "consumer_limits" not in streams.complete(stream("JOBS"), 1)
