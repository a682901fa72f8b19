"""What a console computes needs no key but one that reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.integration.guarded import GuardedBroker
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Outgoing
from penstock.config import topology
from penstock.config.load import check
from penstock.console.computing.parts import Computing, Question
from penstock.console.core.computing import OtherSettings
from penstock.decider.core.inputs import Rules
from penstock.decider.publishing.adopting import records
from penstock.events.envelope import Event, encode
from penstock.events.job import JobCompleted, JobDispatched, JobStarted
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.subjects import Subjects

SUBJECTS = Subjects("penstock")
FEWER = OtherSettings(max_workers=1)


async def recorded(guarded: GuardedBroker, make: MakeSettings) -> int:
    """Settings, a decision and its jobs, stored by the services' own keys; the decision's event."""
    deciders: NatsBus = await connect(guarded.settings(make, "orchestrator"), makes_streams=True)
    await deciders.close()
    deciders = await connect(guarded.settings(make, "decider"))
    pools = topology.pools(check({"pools": {"reports": {}}}))
    for part in records(pools, Rules()):
        subject = SUBJECTS.adopted_settings(part.fingerprint, part.part)
        await deciders.append(Outgoing(subject, encode(part)))
    made = ScalingDecisionMade(
        id="d-1",
        source="decider/a",
        pool="reports",
        current=1,
        target=2,
        reasons=(),
        strategy="hybrid",
        sla_seconds=30,
    )
    sequence = await deciders.append(Outgoing(SUBJECTS.event(made), encode(made)))
    await deciders.close()
    workers = await connect(guarded.settings(make, "worker"))
    dispatchers = await connect(guarded.settings(make, "dispatcher"))
    for number in range(5):
        about = {"job_id": f"j{number}", "queue": "reports"}
        job: Event = JobDispatched(**about, function="shop.load", payload=b"")
        began: Event = JobStarted(**about, attempt=1, host="a", worker="w")
        done: Event = JobCompleted(**about, attempt=1, run_seconds=1.0)
        await dispatchers.append(Outgoing(SUBJECTS.event(job), encode(job)))
        for event in (began, done):
            await workers.append(Outgoing(SUBJECTS.event(event), encode(event)))
    await workers.close()
    await dispatchers.close()
    return sequence


async def test_the_key_of_a_reader_is_enough(
    guarded: GuardedBroker, settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.prefix = "penstock"
    sequence = await recorded(guarded, settings)
    own = guarded.settings(settings, "console")
    reader = f"{guarded.secrets}/console-reader/nkey.seed"
    monkeypatch.chdir(tmp_path)
    console = replace(own.console, reader_nkey_file=reader)
    # The console's own key is not even there: what the child is given is the other one.
    missing = replace(own.nats, nkey_file=str(tmp_path / "missing.seed"))
    computing = Computing(replace(own, console=console, nats=missing), tmp_path, lambda: None)
    question = Question(decision_id="d-1", sequence=sequence, pool="reports")
    answer = await computing.recompute(question, "ada")
    assert answer.recomputed == "not in the log", "its round was not recorded"
    simulation = computing.simulations.begin("reports", FEWER, 3600, 1, "ada", "ada")
    ended = await eventually(
        lambda: one if (one := computing.simulations.get(simulation.id)).has_ended else None, 60
    )
    assert (ended.state, ended.problem) == ("done", "")
    assert [row.jobs for row in ended.result] == [5, 5, 5]
    refused = [one for one in guarded.violations() if one.startswith("console")]
    assert refused == []
