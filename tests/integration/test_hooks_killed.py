"""A hook whose orchestrator is killed right behind a delivery: the event is delivered again."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from tests.integration import orchestrating
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import Outgoing
from penstock.events.subjects import Subjects
from penstock.jobs import Client, job

WITHIN = 30.0


@job(name="hooks-killed.work", queue="reports")
def work() -> None: ...


async def test_a_kill_between_delivery_and_position(settings: MakeSettings, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    code = f"import sys; open({str(taken)!r}, 'a').write(sys.stdin.read() + chr(10))"
    command = [sys.executable, "-S", "-c", code]
    made = settings(
        pools={"reports": {}}, hooks={"pager": {"on": ["cancelled"], "command": command}}
    )
    subjects = Subjects(made.prefix)
    position = subjects.state("cursor", "hook-pager")

    def deliveries() -> list[dict[str, str]]:
        return (
            [json.loads(line) for line in taken.read_text().splitlines()] if taken.exists() else []
        )

    bus = await connect(made)
    try:
        await bus.append(Outgoing(position, b'{"sequence":1}'))  # it has run before
        client = Client(bus, prefix=made.prefix)
        job_id = await client.dispatch(work())
        await client.cancel(job_id, "not wanted")

        doomed = orchestrating.start(made, "BEFORE", "hook-pager")
        try:
            assert await doomed.ended() == -signal.SIGKILL
        finally:
            doomed.end()
        assert [one["job_id"] for one in deliveries()] == [job_id]

        again = orchestrating.start(made)
        try:
            await eventually(lambda: len(deliveries()) == 2, WITHIN, "the second delivery")
            stored = await eventually(lambda: bus.last(subjects.state_stream, position), WITHIN)
            assert stored
        finally:
            again.end()
    finally:
        await bus.close()
    first, second = deliveries()
    assert first == second
