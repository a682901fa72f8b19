"""Pages of a decision and of a pool: recompute, what if, simulate."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from tests.component.console.computing.conftest import Oracle, decided
from tests.component.console.computing.test_computing_api import Reader, recompute, state
from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded

from penstock.events.envelope import new_id
from penstock.events.scaling import Reason


@pytest.fixture
async def eve(site: Site, oracle: Oracle) -> httpx.AsyncClient:
    """Logged in, with a role that may only read."""
    guarded = Guarded(site)
    await guarded.account("eve", "viewer")
    return await guarded.logged_in("eve")


def text_of(page: httpx.Response) -> str:
    """What a person reads."""
    main = page.text[page.text.index("<main") :]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", main))


def instead_of(made_id: str) -> Any:
    reasons = (
        Reason(step="strategy", rule="deadline", workers=52, text="1,204 wait"),
        Reason(step="bounds", rule="max_workers", workers=50, text="no more than <50>"),
    )
    return decided(id=made_id, target=50, reasons=reasons)


@pytest.mark.parametrize(
    ("recomputed", "shown"),
    [
        ("equal", "Recomputed: identical ✓"),
        ("different", "Recomputed: differs ✕"),
        ("other program", "another version of the decider made it"),
    ],
)
async def test_the_page_of_a_decision_shows_whether_it_comes_out_equal(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient, recomputed: str, shown: str
) -> None:
    made = decided()
    await site.store(made)
    why = [] if recomputed == "equal" else ["target: recorded 44, recomputed <b>43</b>"]
    oracle.explains(recomputed=recomputed, why=why)
    before = await eve.get(f"/decisions/{made.id}")
    assert f'action="/decisions/{made.id}/recompute"' in before.text
    assert shown not in text_of(before)
    answer = await eve.post(f"/decisions/{made.id}/recompute")
    assert answer.headers["location"] == f"/decisions/{made.id}#recomputed"
    after = await eve.get(f"/decisions/{made.id}")
    assert shown in text_of(after)
    assert ("recomputed &lt;b&gt;43" in after.text) == bool(why)
    await eve.get(f"/decisions/{made.id}")
    assert len(oracle.calls) == 1, "a page that is only looked at computes nothing"
    [ended, begun] = await Guarded(site).entries("decision.recompute")
    assert (begun.actor, ended.result) == ("eve", "done")
    assert await Guarded(site).entries("page.compute") == []


async def test_other_settings_are_answered_beside_the_real_reasons_at_an_address_of_their_own(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    made = decided()
    await site.store(made)
    oracle.explains(recomputed="equal", instead=instead_of(made.id))
    page = (await eve.get(f"/decisions/{made.id}")).text
    assert 'name="max_workers" value="" placeholder="10"' in page, "as it is now"
    form = {"strategy": "", "policies": "cooldown, keep-busy", "max_workers": "50"}
    answer = await eve.post(f"/decisions/{made.id}/what-if", data=form)
    place = answer.headers["location"]
    assert place == (f"/decisions/{made.id}?policies=cooldown%2C+keep-busy&max_workers=50#what-if")
    shown = await eve.get(place)
    assert "at most 50 workers: 50 instead of 44" in text_of(shown)
    rows = re.findall(r"<tr class=\"differs\">.*?</tr>", shown.text, re.DOTALL)
    assert len(rows) == 1, "the strategy's step is the same in both"
    assert "no more than 44" in rows[0]
    assert "no more than &lt;50&gt;" in rows[0]
    assert 'name="max_workers" value="50"' in shown.text
    [call] = oracle.calls
    assert '--set=pools.reports.policies=["cooldown","keep-busy"]' in call
    other = await eve.get(f"/decisions/{made.id}?max_workers=51")
    assert "press Answer" in text_of(other)
    assert len(oracle.calls) == 1


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ({"max_workers": "many"}, "Most workers: found 'many', expected a whole number"),
        ({"sla_seconds": "nan"}, "Promise, in seconds: found 'nan', expected a number"),
        ({"sla_seconds": "-1"}, "/sla_seconds: Expected `float` > 0"),
        ({"strategy": "a b"}, "/strategy: Expected `str` matching"),
        ({"strategy": ""}, "give at least one of strategy"),
    ],
)
async def test_a_form_that_is_not_right_comes_back_with_the_reason(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient, form: dict[str, str], problem: str
) -> None:
    made = decided()
    await site.store(made)
    for path in (f"/decisions/{made.id}/what-if", "/pools/reports/simulate"):
        answer = await eve.post(path, data=form)
        assert answer.status_code == 400
        assert problem in text_of(answer).replace("&#39;", "'").replace("&gt;", ">")
        for name, value in form.items():
            assert f'name="{name}" value="{value}"' in answer.text
    assert oracle.calls == []


async def test_a_failure_stands_on_the_page(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    made = decided()
    await site.store(made)
    oracle.fails("penstock: pools.reports: unknown strategy 'hyprid'; did you mean 'hybrid'?")
    form = {"strategy": "hyprid"}
    answer = await eve.post(f"/decisions/{made.id}/what-if", data=form)
    assert answer.status_code == 422
    assert "did you mean &#39;hybrid&#39;?" in answer.text
    assert (await eve.post(f"/decisions/{made.id}/recompute")).status_code == 422
    assert (await eve.post("/decisions/gone/what-if", data=form)).status_code == 404
    assert (await eve.get("/pools/gone/simulate")).status_code == 404


async def test_a_simulation_is_begun_followed_and_shown(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    assert 'href="/pools/reports/simulate"' in (await eve.get("/pools/reports")).text
    oracle.holds()
    form = {"hours": "3", "max_workers": "1"}
    begun = await eve.post("/pools/reports/simulate", data=form)
    place = begun.headers["location"]
    simulation_id = place.rpartition("/")[2]
    [call] = await oracle.called()
    assert "--since=10800s" in call
    running = await eve.get(place)
    assert "With at most 1 worker · jobs of 3 h" in text_of(running)
    assert "every 1s" in running.text
    assert f'action="{place}/abort"' in running.text
    reader: Any = site.caller(Reader("mallory"))
    assert f'action="{place}/abort"' not in (await reader.get(place)).text
    oracle.releases()
    await state(eve, simulation_id, "done")
    done = await eve.get(place)
    assert "every 1s" not in done.text
    assert (
        "Under the other settings 1 % of the jobs are late, and workers take 50 % less time than "
        "as set, 79 % less time than a fixed fleet of 4." in text_of(done)
    )
    assert "a fixed fleet of 4 kept ✓ 1" in text_of(done)
    earlier = await eve.get("/pools/reports/simulate")
    assert f'href="{place}"' in earlier.text


async def test_a_simulation_is_aborted_from_its_page_and_one_that_is_gone_says_so(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    oracle.holds()
    place = (await eve.post("/pools/reports/simulate", data={"max_workers": "1"})).headers[
        "location"
    ]
    answer = await eve.post(f"{place}/abort")
    assert answer.headers["location"] == place
    assert "It was aborted." in text_of(await eve.get(place))
    gone = await eve.get(f"/simulations/{new_id()}")
    assert gone.status_code == 410
    assert "begin it again" in text_of(gone)
    assert (await eve.get("/simulations/x-1")).status_code == 404


async def test_what_was_recomputed_by_a_program_stands_on_the_page(
    site: Site, oracle: Oracle, eve: httpx.AsyncClient
) -> None:
    made = decided()
    await site.store(made)
    oracle.explains(
        recomputed="equal",
        changes=[
            {"input": "waiting", "measured": 1204, "needed": 1201, "target": 43, "distance": 0.01}
            | {"text": "with 3 fewer waiting jobs (1201), the decision would have been 43 workers"}
        ],
    )
    assert (await recompute(eve, made.id)).status_code == 200
    page = text_of(await eve.get(f"/decisions/{made.id}"))
    assert "With 3 fewer waiting jobs (1201), the decision would have been 43 workers." in page
