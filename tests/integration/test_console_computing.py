"""Real decisions of a real decider, recomputed and simulated by child processes of a console."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.component.console.computing.test_commands import lives
from tests.integration.deciding import World, dispatched, world
from tests.integration.test_console import Running
from tests.integration.test_replay import eventful_enough
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.events.scaling import ScalingDecisionMade

OWN = {"Sec-Fetch-Site": "same-origin"}
POOLS = {"PENSTOCK_POOLS__EMAILS__SLA_SECONDS": "10"}


@contextmanager
def console_over(here: World, folder: Path) -> Iterator[Running]:
    running = Running(here.settings, folder, **POOLS)
    try:
        yield running
    finally:
        running.child.end(10.0)


def computing_child(pid: int) -> int:
    """The process that a console started and that has become `penstock`; 0 for none."""
    ids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next((int(one) for one in ids if "\0explain\0" in arguments_of(int(one))), 0)


def arguments_of(pid: int) -> str:
    """Empty for a process that has ended, and for one that only has its limits set yet."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
    return "" if "computing.limited" in arguments else arguments


async def test_a_decision_is_recomputed_tried_and_simulated(
    settings: MakeSettings, tmp_path: Path
) -> None:
    async with world("nats", settings) as here:
        await eventful_enough(here)
        await dispatched(here, 40)
        made = here.events(ScalingDecisionMade, pool="emails", target=10)[0]
        with console_over(here, tmp_path) as console:
            async with httpx.AsyncClient(
                base_url=f"{console.url}/api/v1", headers=OWN, timeout=60
            ) as client:
                await console.until(f"/decisions/{made.id}", lambda answer: answer["event"])
                again = await client.post(f"/decisions/{made.id}/recompute")
                assert again.status_code == 200, again.text
                assert again.json()["recomputed"] == "equal"
                assert {one["input"] for one in again.json()["changes"]} >= {"arrival_per_second"}
                order = {"max_workers": 7, "decision": made.id}
                tried = await client.post("/pools/emails/what-if", json=order)
                assert tried.status_code == 200, tried.text
                assert (tried.json()["event"]["target"], tried.json()["instead"]["target"]) == (
                    10,
                    7,
                )
                wrong = {"strategy": "hyprid", "decision": made.id}
                refused = await client.post("/pools/emails/what-if", json=wrong)
                assert refused.status_code == 400
                assert "did you mean 'hybrid'?" in refused.json()["detail"]

                order = {"pool": "emails", "max_workers": 1, "since_seconds": 3600}
                begun = await client.post("/simulations", json=order)
                assert begun.status_code == 202, begun.text
                place = f"/simulations/{begun.json()['id']}"

                async def ended() -> Any:
                    answer = (await client.get(place)).json()
                    return answer if answer["state"] in ("done", "failed") else None

                simulation = await eventually(ended, 60, "the simulation's end")
                assert simulation["state"] == "done", simulation["problem"]
                was, instead, fixed = simulation["result"]
                assert (was["jobs"], was["settings"]) == (40, "emails, as set")
                assert instead["late_share"] > was["late_share"]
                assert fixed["fixed_workers"] >= 1
            await killed_with_its_computation(console, made)


async def killed_with_its_computation(console: Running, made: ScalingDecisionMade) -> None:
    """A stopped child cannot end by itself: the kernel kills it with the console."""
    path = f"{console.url}/api/v1/pools/emails/what-if"
    child = 0
    async with httpx.AsyncClient(headers=OWN, timeout=60) as client:
        order = {"max_workers": 5, "decision": made.id}
        answer = asyncio.create_task(client.post(path, json=order))
        try:
            child = await eventually(lambda: computing_child(console.child.pid), 30, "a child")
            os.kill(child, signal.SIGSTOP)
            console.child.signal(signal.SIGKILL)
            await asyncio.gather(answer, return_exceptions=True)
            await eventually(lambda: not lives(child), 10, "the child's end")
        finally:
            if child and lives(child):
                os.kill(child, signal.SIGKILL)
