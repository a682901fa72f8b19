"""A scaling's story: command, spawn and first job are one trace over three processes."""

from __future__ import annotations

from tests.integration import executor_jobs as jobs
from tests.integration.executing import stage
from tests.integration.otlp import Collector
from tests.making import MakeSettings

from penstock.bus.protocol import Outgoing
from penstock.events.envelope import encode
from penstock.events.scaling import WorkersScaled
from penstock.jobs import Client

_TRACE, _SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


async def test_the_worker_goes_on_with_the_story_of_the_command(settings: MakeSettings) -> None:
    with Collector() as collector:
        telemetry = {"endpoint": collector.endpoint}
        async with stage(settings, telemetry=telemetry) as host:
            plan = WorkersScaled(host=host.host, epoch=1, version=1, pools={"mail": 1})
            headers = {"traceparent": f"00-{_TRACE}-{_SPAN}-01"}
            await host.bus.append(Outgoing(host.subjects.command(host.host), encode(plan), headers))
            host.start()
            client = Client(host.bus, prefix=host.settings.prefix)
            job_id = await client.dispatch(jobs.quick())
            await client.wait(job_id, timeout_seconds=60)
            spawn = collector.wait_for("spawn mail", within=10)
            first = collector.wait_for("first job mail", within=10)
    assert (spawn.trace_id, spawn.parent_id, spawn.kind) == (_TRACE, _SPAN, "consumer")
    assert spawn.service == "penstock-executor"
    assert (first.trace_id, first.parent_id) == (_TRACE, spawn.span_id)
    assert first.service == "penstock-worker"
    assert first.attributes["penstock.worker"] == spawn.attributes["penstock.worker"]
    assert spawn.attributes["penstock.worker.spawn_seconds"] > 0
