"""Recomputed decisions, what-if and simulations by the API."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest
from tests.component.console.computing.conftest import Oracle, cancelled, decided
from tests.component.console.computing.test_commands import lives
from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded
from tests.component.console.test_api_acting import Person
from tests.waiting import eventually

from penstock.config.load import check
from penstock.console.computing import parts, simulations
from penstock.console.web.credentials import Principal
from penstock.console.web.scopes import Scope
from penstock.events.envelope import new_id, utc_now
from penstock.events.scaling import Reason
from penstock.events.snapshot import PoolSnapshot, Quantiles

API = "/api/v1"
EVERY = [scope for scope in Scope if scope is not Scope.PUBLIC]


class Reader:
    """A person who may read, and nothing else."""

    def __init__(self, name: str = "eve", *scopes: Scope, account: str = "") -> None:
        self.caller = Principal(
            name=name,
            account=account,
            scopes=frozenset({Scope.READ, *scopes}),
            kind="token",
            id=name,
        )

    def principal(self, headers: Any) -> Principal:
        return self.caller


@pytest.fixture
def eve(site: Site, oracle: Oracle) -> httpx.AsyncClient:
    return site.caller(Reader())


async def recompute(client: httpx.AsyncClient, decision_id: str) -> httpx.Response:
    return await client.post(f"{API}/decisions/{decision_id}/recompute")


async def what_if(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await client.post(f"{API}/pools/reports/what-if", json=body)


async def simulate(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    order = {"pool": "reports", "max_workers": 9, **body}
    return await client.post(f"{API}/simulations", json=order)


async def state(client: httpx.AsyncClient, simulation_id: str, wanted: str) -> Any:
    async def reached() -> Any:
        answer = (await client.get(f"{API}/simulations/{simulation_id}")).json()
        return answer if answer["state"] == wanted else None

    return await eventually(reached, 30, f"the state {wanted}")


async def test_a_decision_is_recomputed_once_and_the_answer_kept(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    made = decided()
    sequence = await site.store(made)
    oracle.explains(
        recomputed="equal",
        changes=[
            {"input": "waiting", "measured": 1204, "needed": 1201, "target": 43, "distance": 0.01}
            | {"text": "with 3 fewer waiting jobs (1201), the decision would have been 43 workers"}
        ],
    )
    first = await recompute(eve, made.id)
    assert first.status_code == 200, first.text
    assert first.json()["recomputed"] == "equal"
    assert first.json()["decision"]["id"] == made.id
    assert first.json()["changes"][0]["target"] == 43
    assert (await recompute(eve, made.id)).json()["recomputed"] == "equal"
    [[_, *arguments]] = oracle.calls
    assert arguments == ["--json", "decision", "explain", f"--event={sequence}", "--", made.id]


async def test_equal_requests_share_one_process(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    made = decided()
    await site.store(made)
    oracle.holds()
    asked = [asyncio.create_task(recompute(eve, made.id)) for _ in range(8)]
    await oracle.called()
    oracle.releases()
    answers = await asyncio.gather(*asked)
    assert [one.status_code for one in answers] == [200] * 8
    assert len(oracle.calls) == 1


async def test_what_is_not_in_the_log_yet_is_looked_for_again(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    made = decided()
    await site.store(made)
    oracle.explains(recomputed="not in the log", why=["the record of its round is missing"])
    answer = (await recompute(eve, made.id)).json()
    assert (answer["recomputed"], answer["why"]) == (
        "not in the log",
        ["the record of its round is missing"],
    )
    oracle.explains(recomputed="equal")
    assert (await recompute(eve, made.id)).json()["recomputed"] == "equal"


async def test_other_settings_stand_beside_the_decision_that_was_made(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    older, made = decided(), decided()
    await site.store(older, made)
    instead = decided(
        id=made.id,
        target=52,
        reasons=(Reason(step="strategy", rule="deadline", workers=52, text="1,204 wait"),),
    )
    oracle.explains(recomputed="equal", instead=instead)
    answer = await what_if(eve, max_workers=60, strategy="hybrid")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["event"]["target"], body["instead"]["target"]) == (44, 52)
    assert body["decision"]["id"] == made.id, "the last one, as none was named"
    assert {"max_workers": 60, "strategy": "hybrid"}.items() <= body["settings"].items()
    named = await what_if(eve, max_workers=60, decision=older.id)
    assert named.json()["decision"]["id"] == older.id
    assert '--set=pools.reports.strategy="hybrid"' in oracle.calls[0]
    assert "--set=pools.reports.max_workers=60" in oracle.calls[0]
    assert len(oracle.calls) == 2


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"max_workers": "60"}, "/max_workers"),
        ({"strategy": "hybrid --json"}, "/strategy"),
        ({"sla_seconds": 0}, "/sla_seconds"),
        ({"tries": 3}, "/"),
        ({}, ""),
    ],
)
async def test_bad_settings_start_nothing(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient, body: dict[str, Any], pointer: str
) -> None:
    await site.store(decided())
    answer = await what_if(eve, **body)
    assert answer.status_code == 400, answer.text
    assert [one.get("pointer") for one in answer.json().get("errors", [{"pointer": ""}])] == [
        pointer
    ]
    assert oracle.calls == []


async def test_what_is_not_there_starts_nothing(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    elsewhere = decided("imports")
    await site.store(elsewhere)
    answers = [
        await recompute(eve, "gone"),
        await what_if(eve, max_workers=9),
        await what_if(eve, max_workers=9, decision="gone"),
        await what_if(eve, max_workers=9, decision=elsewhere.id),
        await simulate(eve, pool="gone"),
        await eve.get(f"{API}/simulations/gone"),
        await eve.delete(f"{API}/simulations/gone"),
    ]
    assert [one.status_code for one in answers] == [404] * 7
    assert oracle.calls == []


async def test_the_reason_of_a_failure_is_a_sentence_and_the_next_request_tries_again(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    made = decided()
    await site.store(made)
    oracle.fails("penstock: no broker answers at nats://127.0.0.1:4222")
    answer = await recompute(eve, made.id)
    assert answer.status_code == 422
    assert answer.json()["title"] == "It could not be computed"
    assert answer.json()["detail"] == "no broker answers at nats://127.0.0.1:4222"
    await recompute(eve, made.id)
    assert len(oracle.calls) == 2


async def test_a_command_without_the_decider_says_which_package_is_missing(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    made = decided()
    await site.store(made)
    oracle.explains(pool="reports", sentences=["38 to 44"])
    answer = await recompute(eve, made.id)
    assert answer.status_code == 422
    assert "penstock-decider" in answer.json()["detail"]


async def test_more_than_two_at_once_are_refused_until_one_has_ended(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    made = [decided() for _ in range(parts.AT_ONCE + 1)]
    await site.store(*made)
    oracle.holds()
    people = [eve, site.caller(Reader("mallory"))]
    running = [
        asyncio.create_task(recompute(person, one.id))
        for person, one in zip(people, made[:-1], strict=True)
    ]
    await oracle.called(parts.AT_ONCE)
    refused = await recompute(site.caller(Reader("anna")), made[-1].id)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
    assert "2 computations run" in refused.json()["detail"]
    oracle.releases()
    assert [one.status_code for one in await asyncio.gather(*running)] == [200, 200]
    assert (await recompute(eve, made[-1].id)).status_code == 200


async def test_one_person_with_many_tokens_has_one_of_the_two_places(
    site: Site, oracle: Oracle
) -> None:
    made = [decided() for _ in range(3)]
    await site.store(*made)
    first, second = (site.caller(Reader(f"t{number}", account="eve")) for number in range(2))
    oracle.holds()
    running = asyncio.create_task(recompute(first, made[0].id))
    await oracle.called(1)
    joined = asyncio.create_task(recompute(second, made[0].id))
    refused = await recompute(second, made[1].id)
    assert refused.status_code == 503
    assert "one of your computations runs" in refused.json()["detail"]
    other = asyncio.create_task(recompute(site.caller(Reader("mallory")), made[2].id))
    await oracle.called(2)
    oracle.releases()
    answers = await asyncio.gather(running, joined, other)
    assert [answer.status_code for answer in answers] == [200, 200, 200]


async def test_of_many_at_the_same_moment_those_beyond_are_refused_with_a_reason(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    made = [decided() for _ in range(6)]
    await site.store(*made)
    oracle.holds()
    people = [site.caller(Reader(f"p{number}")) for number in range(6)]
    asked = [
        asyncio.create_task(recompute(person, one.id))
        for person, one in zip(people, made, strict=True)
    ]
    await oracle.called(parts.AT_ONCE)
    await eventually(lambda: sum(one.done() for one in asked) == 4, 10, "the refusals")
    oracle.releases()
    answers = await asyncio.gather(*asked)
    assert sorted(one.status_code for one in answers) == [200, 200, 503, 503, 503, 503]
    refused = {one.json()["detail"] for one in answers if one.status_code == 503}
    assert refused == {"2 computations run; try again in a moment"}


async def test_one_person_may_begin_so_many_a_minute_and_kept_answers_are_free(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 6_000.0)
    site.console.computing._limits.per_minute = 2
    made = [decided() for _ in range(3)]
    await site.store(*made)
    assert [(await recompute(eve, one.id)).status_code for one in made] == [200, 200, 429]
    refused = await recompute(eve, made[2].id)
    assert "2 computations are allowed a minute" in refused.json()["detail"]
    assert refused.headers["retry-after"] == "60"
    assert (await recompute(eve, made[0].id)).status_code == 200
    other = site.caller(Reader("mallory"))
    assert (await recompute(other, made[2].id)).status_code == 200


async def test_a_client_that_goes_away_ends_the_process(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    made = decided()
    await site.store(made)
    oracle.holds()
    asked = asyncio.create_task(recompute(eve, made.id))
    [[pid, *_]] = await oracle.called()
    await cancelled(asked)
    await eventually(lambda: not lives(pid), 10, "the end of the process")
    assert not site.console.computing.commands.is_full


async def test_the_end_of_the_console_ends_computations_and_simulations(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    made = decided()
    await site.store(made)
    oracle.holds()
    asked = asyncio.create_task(recompute(eve, made.id))
    await simulate(eve)
    pids = [pid for pid, *_ in await oracle.called(2)]
    await site.end_tasks()
    assert (await asked).status_code == 422
    assert "the console ends" in (await asked).json()["detail"]
    await eventually(lambda: not any(map(lives, pids)), 10, "the end of both")


async def test_a_simulation_runs_behind_its_request_and_compares_with_a_fixed_fleet(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    spawn = Quantiles(count=9, mean_seconds=3, p50_seconds=2.5, p95_seconds=5, p99_seconds=6)
    measured = PoolSnapshot(pool="reports", queues=("reports",), waiting=0, spawn=spawn)
    await site.publish(site.subjects.pool_snapshot("reports"), measured)
    oracle.holds()
    answer = await simulate(eve, since_seconds=3600, strategy="hybrid")
    assert answer.status_code == 202, answer.text
    begun = answer.json()
    assert (begun["state"], begun["by"], begun["spawn_seconds"]) == ("queued", "eve", 2.5)
    await state(eve, begun["id"], "running")
    oracle.releases()
    done = await state(eve, begun["id"], "done")
    assert [(row["settings"], row["fixed_workers"]) for row in done["result"]] == [
        ("reports, as set", 0),
        ("reports, instead", 0),
        ("reports, 4 fixed", 4),
    ]
    assert done["share"] == 1.0
    [[_, *arguments]] = oracle.calls
    assert {"--pool=reports", "--since=3600s", "--simulate=2.500s", "--progress"} <= set(arguments)
    listed = (await eve.get(f"{API}/simulations?pool=reports")).json()["items"]
    assert [one["id"] for one in listed] == [begun["id"]]
    assert (await eve.get(f"{API}/simulations?pool=imports")).json()["items"] == []


async def test_simulations_run_one_after_the_other_and_a_failure_does_not_stop_the_next(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    oracle.holds()
    first = (await simulate(eve)).json()["id"]
    await oracle.called(1)
    second = (await simulate(eve, max_workers=3)).json()["id"]
    assert (await state(eve, second, "queued"))["started_at"] is None
    oracle.fails("penstock: no job of pool 'reports' was completed in this part of the log")
    oracle.releases()
    failed = await state(eve, first, "failed")
    assert failed["problem"] == "no job of pool 'reports' was completed in this part of the log"
    await state(eve, second, "failed")
    assert len(oracle.calls) == 2


async def test_a_person_has_two_unfinished_simulations_at_most_and_all_have_eight(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    oracle.holds()
    assert [(await simulate(eve)).status_code for _ in range(3)] == [202, 202, 429]
    others = [site.caller(Reader(f"p{number}")) for number in range(4)]
    statuses = [(await simulate(one)).status_code for one in others for _ in range(2)]
    assert statuses == [202] * 6 + [503] * 2


async def test_all_tokens_of_a_person_have_two_unfinished_simulations_together(
    site: Site, oracle: Oracle
) -> None:
    oracle.holds()
    tokens = [site.caller(Reader(f"t{number}", account="eve")) for number in range(3)]
    assert [(await simulate(token)).status_code for token in tokens] == [202, 202, 429]


async def test_people_take_turns_however_many_simulations_one_has(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    oracle.holds()
    running = (await simulate(eve)).json()["id"]
    await oracle.called(1)
    second = (await simulate(eve, max_workers=2)).json()["id"]
    mallory = site.caller(Reader("mallory"))
    other = (await simulate(mallory, max_workers=3)).json()["id"]
    oracle.releases()
    for simulation in (running, second, other):
        await state(eve, simulation, "done")
    assert ["--set=pools.reports.max_workers=3" in call for call in oracle.calls] == [
        False,
        True,
        False,
    ]


async def test_the_simulations_of_a_person_have_so_much_time_an_hour(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulations, "MOST_SECONDS_OF_A_PERSON", 1e-9)
    begun = (await simulate(eve)).json()["id"]
    await state(eve, begun, "done")
    refused = await simulate(eve)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "600")
    assert "within the last hour" in refused.json()["detail"]
    assert (await simulate(site.caller(Reader("mallory")))).status_code == 202


@pytest.mark.parametrize(
    "order", [{"max_workers": 10_001}, {"spawn_seconds": 3601}, {"since_seconds": 604_801}]
)
async def test_what_no_simulation_can_bear_is_refused(
    oracle: Oracle, eve: httpx.AsyncClient, order: dict[str, Any]
) -> None:
    assert (await simulate(eve, **order)).status_code == 400
    assert oracle.calls == []


async def test_an_aborted_simulation_ends_with_its_process_for_its_person_or_an_administrator(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    oracle.holds()
    running, queued = [(await simulate(eve)).json()["id"] for _ in range(2)]
    [[pid, *_]] = await oracle.called()
    other = site.caller(Reader("mallory"))
    assert (await other.delete(f"{API}/simulations/{running}")).status_code == 403
    assert lives(pid)
    root = site.caller(Reader("root", Scope.ADMIN))
    assert (await root.delete(f"{API}/simulations/{queued}")).json()["state"] == "aborted"
    answer = await eve.delete(f"{API}/simulations/{running}")
    assert (answer.status_code, answer.json()["state"]) == (202, "aborted")
    assert not lives(pid)
    oracle.releases()
    after = (await simulate(eve)).json()["id"]
    await state(eve, after, "done")
    assert (await eve.delete(f"{API}/simulations/{after}")).json()["state"] == "done"
    assert len(oracle.calls) == 2, "the queued one never ran"


async def test_what_is_not_kept_any_more_is_gone_and_what_never_was_is_not_there(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = (await simulate(eve)).json()["id"]
    await state(eve, begun, "done")
    of_another_process = new_id()
    later = utc_now() + simulations.KEPT + timedelta(seconds=1)
    monkeypatch.setattr(simulations, "utc_now", lambda: later)
    for simulation_id in (begun, of_another_process):
        answer = await eve.get(f"{API}/simulations/{simulation_id}")
        assert answer.status_code == 410
        assert "in the memory of the console that ran it" in answer.json()["detail"]
    assert (await eve.get(f"{API}/simulations/x-1")).status_code == 404
    monkeypatch.setattr(simulations, "MOST_KEPT", 3)
    for _ in range(5):
        await state(eve, (await simulate(eve)).json()["id"], "done")
    assert len((await eve.get(f"{API}/simulations")).json()["items"]) <= 3


async def test_computations_stand_in_the_audit_log(site: Site, oracle: Oracle) -> None:
    made = decided()
    await site.store(made)
    guarded = Guarded(site)
    reader = await guarded.bearer("read")
    await recompute(reader, made.id)
    await what_if(reader, max_workers=60)
    simulation = (await simulate(reader)).json()["id"]
    await reader.delete(f"{API}/simulations/{simulation}")
    for action, target in {
        "decision.recompute": f"decision:{made.id}",
        "pool.what-if": f"decision:{made.id}",
        "simulation.begin": f"simulation:{simulation}",
        "simulation.abort": f"simulation:{simulation}",
    }.items():
        [ended, begun] = await guarded.entries(action)
        assert (begun.result, ended.result, ended.target) == ("begun", "done", target)
    assert (await guarded.entries("pool.what-if"))[0].after == {"max_workers": "60"}


async def test_a_console_that_only_reads_computes_too(
    site: Site, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = decided()
    await site.store(made)
    object.__setattr__(site.console.control, "read_only", True)
    client = site.caller(Person())
    assert (await recompute(client, made.id)).status_code == 200
    assert (await simulate(client)).status_code == 202
    refused = await client.post(f"{API}/queues/reports/pause", json={"reason": "r"})
    assert refused.status_code == 403


async def test_settings_that_name_a_reading_key_are_read() -> None:
    settings = check({"console": {"reader_nkey_file": "/keys/reader.seed"}})
    assert settings.console.reader_nkey_file == "/keys/reader.seed"
