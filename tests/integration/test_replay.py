"""What a real decider decided, computed again from the log of a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.buses import both
from tests.integration.deciding import EMAILS, QUICK, World, dispatched, world
from tests.integration.shell import Shell
from tests.integration.test_decider_app import BUSIER, BUSY, keep_reporting
from tests.waiting import eventually

from penstock.bus.saved_log import Entry, line
from penstock.cli.errors import Failed
from penstock.cli.scaling import explanation, recorded_arrivals, recorded_rounds
from penstock.cli.scaling.recorded_rounds import Span
from penstock.config import ConfigError, topology
from penstock.decider.publishing import recorder
from penstock.decider.replay import stretches
from penstock.decider.replay.explain import Explanation
from penstock.events.envelope import encode, utc_now
from penstock.events.record import RECORDS, CheckpointTaken, RoundDecided
from penstock.events.scaling import LeaderChanged, ScalingDecisionMade
from penstock.events.telling import chain
from penstock.events.worker import HostLost

POOLS = {**EMAILS, "reports": {"min_workers": 1, "max_workers": 9, "strategy": "hybrid"}}


@pytest.fixture(params=both("memory"))
async def here(request: pytest.FixtureRequest, monkeypatch) -> AsyncIterator[World]:
    monkeypatch.setattr(recorder, "CHECKPOINT_SECONDS", 1.5)
    tables: dict[str, Any] = {"pools": POOLS, "host": {"name": "x", "lease_seconds": 1.0}}
    async with world(request.param, request.getfixturevalue("settings"), **tables) as found:
        yield found


@asynccontextmanager
async def reporting(here: World, **fields: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(keep_reporting(here, **fields))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def eventful(here: World) -> None:
    """Load, an urgent round, silence, a lost host, a leader that vanishes, a restart."""
    here.host("a")
    here.host("b")
    await here.report(**BUSY)
    await here.start()
    await here.plan("a", emails=5, reports=1)
    for _ in range(3):
        await here.report(**BUSIER, wakeup="backlog")
        await here.decided()
    await eventually(lambda: here.events(ScalingDecisionMade)[-1].reasons[0].step == "stale")
    async with reporting(here, **BUSY):
        here.vanish("b")
        await here.event(HostLost, host="b")
        await here.freeze(here._services[0].service)
        await here.start()
        await eventually(lambda: len(here.events(LeaderChanged)) == 2)
        await here.decided(3)


async def saved(here: World, path: Path, **span: Any) -> Path:
    with path.open("wb") as file:
        await recorded_rounds.save(here.bus, here.subjects, Span(**span), file, lambda _: None)
    return path


def tampered(path: Path, change: Callable[[Entry], Entry | None]) -> Path:
    found = path.with_suffix(".tampered")
    with found.open("wb") as file:
        for entry in stretches.entries(path):
            changed = change(entry)
            if changed is not None:
                file.write(line(changed))
    return found


def needed(path: Path) -> int:
    """A message that a round saw, that is in no checkpoint, and that was new to it."""
    records = [RECORDS.decode(e.body) for e in stretches.entries(path) if ".round." in e.subject]
    kept = {(r.epoch, r.number) for r in records if isinstance(r, CheckpointTaken)}
    rounds = [r for r in records if isinstance(r, RoundDecided)]
    return next(
        two.through
        for one, two in pairwise(rounds)
        if (two.epoch, two.number) not in kept and one.epoch == two.epoch
        if one.through < two.through
    )


async def test_all_that_was_decided_is_decided_again(here: World, tmp_path):
    await eventful(here)
    told = here.events(ScalingDecisionMade)
    path = await saved(here, tmp_path / "log")
    verdict = stretches.verify(path)
    assert verdict.is_equal, verdict
    assert verdict.published >= len(told)
    assert verdict.equal_states >= 1
    assert verdict.decisions > verdict.rounds  # both pools in most of them
    assert any(each.reasons[0].step == "stale" for each in told)


async def test_what_was_changed_afterwards_is_found(here: World, tmp_path):
    await eventful(here)
    path = await saved(here, tmp_path / "log")

    def more_workers(entry: Entry) -> Entry:
        body = bytes(entry.body).replace(b'"target":10', b'"target":11')
        return msgspec.structs.replace(entry, body=msgspec.Raw(body))

    verdict = stretches.verify(tampered(path, more_workers))
    assert not verdict.is_equal
    assert any("target: recorded 11, recomputed 10" in each.what for each in verdict.differences)

    def less_load(entry: Entry) -> Entry:
        body = bytes(entry.body).replace(b'"arrival_per_second":10.0', b'"arrival_per_second":9.0')
        return msgspec.structs.replace(entry, body=msgspec.Raw(body))

    verdict = stretches.verify(tampered(path, less_load))
    assert not verdict.is_equal
    assert any(each.pool == "emails" for each in verdict.differences)


async def test_what_is_missing_is_a_gap(here: World, tmp_path):
    await eventful(here)
    path = await saved(here, tmp_path / "log")
    lost = needed(path)
    verdict = stretches.verify(tampered(path, lambda e: None if e.sequence == lost else e))
    assert not verdict.is_equal
    assert verdict.gaps
    assert not verdict.differences
    assert f"messages {lost} to {lost} are not in the log" in verdict.unproven[0].why
    assert verdict.rounds == verdict.equal_rounds > 0  # before, and after the next checkpoint

    def without_settings(entry: Entry) -> Entry | None:
        return None if ".settings." in entry.subject and not entry.sequence else entry

    verdict = stretches.verify(tampered(path, without_settings))
    assert not verdict.rounds
    assert "settings" in verdict.unproven[0].why


async def test_decisions_are_proved_too_where_they_are_not_told(settings, tmp_path):
    """By the digest of their round."""
    decider = {**QUICK, "repeat_seconds": 60.0}
    async with world("memory", settings, decider=decider) as here:
        here.host("a")
        rounds: list[str] = []
        records = here.subjects.round(RoundDecided.__name__)
        await here.bus.listen(records, lambda subject, _: rounds.append(subject))
        async with reporting(here, **BUSY):
            await here.start()
            await here.plan("a", emails=10)
            await eventually(lambda: len(rounds) >= 4)
        path = await saved(here, tmp_path / "log")
    verdict = stretches.verify(path)
    assert verdict.is_equal
    assert verdict.published < verdict.decisions == verdict.equal_decisions


async def test_a_decision_is_explained_from_the_log(here: World, caplog):
    caplog.set_level("INFO", "penstock.decider")
    await eventful(here)
    scaled = here.events(ScalingDecisionMade, pool="emails", target=10)[0]
    told = await eventually(lambda: here.events(ScalingDecisionMade, pool="emails", current=10))
    for made in (scaled, told[-1]):
        found = await explanation.explain(here.bus, here.subjects, made, encode(made))
        assert found is not None
        assert found.recomputed == "equal", found
    assert any(chain(scaled) in each.getMessage() for each in caplog.records)
    found = await explanation.explain(here.bus, here.subjects, scaled, encode(scaled))
    assert found is not None
    rate = next(each for each in found.changes if each.input == "arrival_per_second")
    assert (rate.measured, rate.target) in {(5.0, 9), (5.0, 11)}
    text = "\n".join(explanation.sentences(scaled, found))
    assert "the same, bit for bit" in text
    assert "the decision would have been" in text


async def test_a_decision_whose_round_is_gone_is_told_as_it_was(here: World):
    await eventful(here)
    made = here.events(ScalingDecisionMade, pool="emails", target=10)[0]
    checkpoints = here.subjects.round(CheckpointTaken.__name__)
    await here.bus.remove(here.subjects.snapshots_stream, checkpoints)
    found = await explanation.explain(here.bus, here.subjects, made, encode(made))
    assert found is not None
    assert found.recomputed == "not in the log"
    assert made.reasons[0].text in "\n".join(explanation.sentences(made, found))


async def test_the_jobs_of_the_log_arrive_again_under_other_settings(here: World):
    await dispatched(here, 40)
    pool = topology.pools(here.settings)["emails"]
    trace = await recorded_arrivals.read(here.bus, here.subjects, Span(), pool)
    assert trace is not None
    assert len(trace.times) == 40
    few = replace(pool, profile=replace(pool.profile, max_workers=1))
    shares: list[float] = []
    settings = {"as set": pool, "instead": few}
    plenty, short, fixed = recorded_arrivals.simulate(trace, settings, 0.5, shares.append)
    assert (plenty.jobs, short.settings) == (40, "emails, instead")
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    # One would take 40 s for all of them; two catch up within the 30 s of the promise.
    assert (fixed.fixed_workers, fixed.keeps_promise) == (2, True)
    assert fixed.settings == "emails, 2 fixed"
    assert (plenty.keeps_promise, short.keeps_promise) == (True, False)
    assert short.late_share > plenty.late_share
    assert short.worker_seconds < plenty.worker_seconds
    with pytest.raises(Failed, match="more than 39 jobs of pool 'emails'"):
        await recorded_arrivals.read(here.bus, here.subjects, Span(), pool, 39)
    assert (
        await recorded_arrivals.read(here.bus, here.subjects, Span(since=utc_now()), pool) is None
    )


async def test_a_round_is_decided_again_under_other_settings(here: World):
    await eventful(here)
    made = here.events(ScalingDecisionMade, pool="emails", target=10)[0]

    async def under(**changes: Any) -> Explanation:
        other = {f"pools.emails.{name}": value for name, value in changes.items()}
        result = await explanation.explain(here.bus, here.subjects, made, encode(made), other)
        assert result is not None
        return result

    fewer = await under(max_workers=7)
    assert fewer.recomputed == "equal"
    assert fewer.instead is not None
    assert (fewer.instead.target, fewer.instead.id) == (7, made.id)
    assert (fewer.instead.current, fewer.instead.round) == (made.current, made.round)
    text = "\n".join(explanation.sentences(made, fewer))
    assert "Under the other settings" in text
    assert fewer.instead.reasons[-1].text in text
    same = await under(sla_seconds=made.sla_seconds)
    assert same.instead is not None
    assert same.instead.reasons == made.reasons
    for changes, problem in (
        ({"strategy": "hyprid"}, "unknown strategy 'hyprid'"),
        ({"min_workers": 8, "max_workers": 7}, "min_workers 8 exceeds max_workers 7"),
        ({"policies": ["cooldwn"]}, "unknown policy 'cooldwn'"),
        ({"sla": 3}, "changes no decision|unknown field|sla"),
    ):
        with pytest.raises(ConfigError, match=problem):
            await under(**changes)


async def test_the_command_reads_the_broker(settings, tmp_path):
    async with world("nats", settings) as here:
        await eventful_enough(here)
        scaled = here.events(ScalingDecisionMade, pool="emails", target=10)[0]
        nats, prefix = here.settings.nats.url, here.settings.prefix
        (tmp_path / "penstock.toml").write_text(f'prefix = "{prefix}"\n[nats]\nurl = "{nats}"\n')
        shell = Shell(tmp_path)
        answer = await asyncio.to_thread(shell.json, "replay", "--since", "10m", "--save", "log")
        assert answer["equal"] is True
        assert answer["verdict"]["published"] >= 3
        again = await asyncio.to_thread(shell.text, "replay", "--from", "log")
        assert "Equal bit for bit: all" in again
        told = await asyncio.to_thread(shell.json, "decision", "explain", scaled.id)
        assert told["recomputed"] == "equal"
        assert {change["input"] for change in told["changes"]} >= {"arrival_per_second"}
        other = ("--set", "pools.emails.max_workers=7")
        sequence = await sequence_of(here, scaled)
        for where in ((), ("--event", str(sequence))):
            asked = ("decision", "explain", *where, *other, "--", scaled.id)
            assert (await asyncio.to_thread(shell.json, *asked))["instead"]["target"] == 7
        elsewhere = ("decision", "explain", "--event", "1", "--", scaled.id)
        missing = await asyncio.to_thread(shell.call, *elsewhere, code=1)
        assert "no decision" in missing.stderr
        nothing = await asyncio.to_thread(shell.call, "replay", "--until", "1d", code=1)
        assert "no round of decisions is recorded" in nothing.stderr


async def sequence_of(here: World, made: ScalingDecisionMade) -> int:
    sequence, subject = 0, here.subjects.event(made)
    while True:
        stored = await here.bus.next(here.subjects.events_stream, subject, sequence + 1)
        assert stored is not None
        sequence = stored.sequence
        if msgspec.json.decode(stored.body)["id"] == made.id:
            return sequence


async def eventful_enough(here: World) -> None:
    here.host("a")
    await here.report(**BUSY)
    await here.start()
    await here.plan("a", emails=10)
    await here.decided(2)
    await here.stop(here._services[0].service)
