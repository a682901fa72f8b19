"""Acts on batches, graphs and workflows, and new ones from JSON."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, JSONBody

from penstock.console.api.acts.receipt import (
    ACCEPTED,
    ApiRequest,
    Reason,
    Receipt,
    ShortText,
    Text,
    client_of,
    receipt,
    target,
)
from penstock.console.api.endpoint import Routes
from penstock.console.bulk.changes import CHANGES, Change
from penstock.console.parts import Console
from penstock.console.web.acting import act
from penstock.console.web.scopes import Scope
from penstock.jobs.job_type import NamedJob
from penstock.jobs.workflows.coded.workflow_type import MAX_VERSION
from penstock.jobs.workflows.declared.reading import from_values
from penstock.jobs.workflows.fixing import MOST_KEYS


class NewCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job of a batch."""

    function: ShortText
    queue: ShortText
    arguments: dict[str, Any] = {}


FailedJobs = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
FailedShare = Annotated[
    str,
    msgspec.Meta(pattern=r"^([0-9]{1,9}|(100(\.0{1,6})?|[0-9]{1,2}(\.[0-9]{1,6})?)%)$"),
]


class NewBatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A batch of jobs; ``allowed_failures`` more than which fail it is a number or ``5%``."""

    calls: Annotated[tuple[NewCall, ...], msgspec.Meta(min_length=1, max_length=5_000)]
    id: ShortText = ""
    title: ShortText = ""
    allowed_failures: FailedJobs | FailedShare = 0


class NewGraph(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A graph by its definition, which is not stored.

    Attributes:
        definition: as `penstock workflow define` takes it.
        context: values of the keys that it declares.
    """

    definition: dict[str, Any]
    context: dict[str, Any] = {}
    id: ShortText = ""
    title: ShortText = ""


class NewRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An instance of a stored definition."""

    definition: ShortText
    context: dict[str, Any] = {}
    id: ShortText = ""
    title: ShortText = ""


class NewSignal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value for a step that waits for it; of those with one id the first counts."""

    name: ShortText
    value: Any = None
    id: ShortText = ""


class WorkflowFix(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What changes for a blocked workflow: one of the three.

    Attributes:
        forget: keys of steps whose record counts no more.
        version: of the code that is to run it from now on.
        accept: what was recorded counts although functions or arguments differ.
    """

    forget: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MOST_KEYS)] = ()
    version: Annotated[int, msgspec.Meta(ge=0, le=MAX_VERSION)] = 0
    accept: bool = False
    reason: Text = ""


SIGNALS = {
    "graph": "Sends a value to the step of a graph that waits for it.",
    "workflow": "Sends a value to a workflow, which may wait for it now or later.",
}
"""What may be signalled, with the description of its endpoint."""
_FOLDERS = {"batch": "batches", "graph": "graphs", "workflow": "workflows"}
_LONGEST_NOTE = 1_000
_EVENTS_OF = {"batch": "batch", "graph": "graph", "workflow": "job"}


def change(console: Console, noun: str, verb: str, about: str, apply: Change) -> HTTPRouteHandler:
    """The endpoint of one verb."""

    @act(
        "POST",
        f"/{_FOLDERS[noun]}/{{key:str}}/{verb}",
        Scope.JOBS,
        f"{noun}.{verb}",
        status_code=ACCEPTED,
        name=f"{noun} {verb}",
        operation_id=f"{noun}_{verb}".replace("-", "_"),
        description=about,
    )
    async def endpoint(request: ApiRequest, key: FromPath[str], data: JSONBody[Reason]) -> Receipt:
        target(request, noun, key, reason=data.reason)
        await apply(client_of(console, request), key, data.reason)
        return await receipt(console, _EVENTS_OF[noun], key)

    return endpoint


def signal(console: Console, noun: str, about: str) -> HTTPRouteHandler:
    """The endpoint that signals a graph or a workflow."""

    @act(
        "POST",
        f"/{_FOLDERS[noun]}/{{key:str}}/signal",
        Scope.JOBS,
        f"{noun}.signal",
        status_code=ACCEPTED,
        name=f"{noun} signal",
        operation_id=f"{noun}_signal",
        description=about,
    )
    async def endpoint(
        request: ApiRequest, key: FromPath[str], data: JSONBody[NewSignal]
    ) -> Receipt:
        target(request, noun, key, signal=data.name)
        client = client_of(console, request)
        send = client.graphs.signal if noun == "graph" else client.workflows.signal
        await send(key, data.name, data.value, signal_id=data.id)
        return await receipt(console, noun, key)

    return endpoint


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @act("POST", "/batches", Scope.JOBS, "batch.create", status_code=ACCEPTED)
    async def create_batch(request: ApiRequest, data: JSONBody[NewBatch]) -> Receipt:
        """Dispatches jobs as one batch; with an `id` the same request goes on where it stopped."""
        calls = [NamedJob(one.function, queue=one.queue)(**one.arguments) for one in data.calls]
        batch_id = await client_of(console, request).batches.create(
            calls, title=data.title, batch_id=data.id, allowed_failures=data.allowed_failures
        )
        target(request, "batch", batch_id, jobs=str(len(calls)))
        return await receipt(console, "batch", batch_id)

    @act("POST", "/graphs", Scope.JOBS, "graph.create", status_code=ACCEPTED)
    async def create_graph(request: ApiRequest, data: JSONBody[NewGraph]) -> Receipt:
        """Starts a graph by a definition that is not stored."""
        definition = from_values(data.definition)
        graph_id = await client_of(console, request).definitions.run(
            definition, data.context, graph_id=data.id, title=data.title
        )
        target(request, "graph", graph_id, definition=definition.name)
        return await receipt(console, "graph", graph_id)

    @act("POST", "/workflows/run", Scope.JOBS, "workflow.run", status_code=ACCEPTED)
    async def run(request: ApiRequest, data: JSONBody[NewRun]) -> Receipt:
        """Starts an instance of a stored definition, which is a graph."""
        graph_id = await client_of(console, request).definitions.run(
            data.definition, data.context, graph_id=data.id, title=data.title
        )
        target(request, "graph", graph_id, definition=data.definition)
        return await receipt(console, "graph", graph_id)

    @act("POST", "/workflows/{key:str}/fix", Scope.JOBS, "workflow.fix", status_code=ACCEPTED)
    async def fix(request: ApiRequest, key: FromPath[str], data: JSONBody[WorkflowFix]) -> Receipt:
        """Changes what a blocked workflow goes on from; it is offered to a worker at once."""
        target(
            request,
            "workflow",
            key,
            forget=", ".join(data.forget)[:_LONGEST_NOTE],
            version=str(data.version or ""),
            accept="yes" if data.accept else "",
            reason=data.reason,
        )
        await client_of(console, request).workflows.fix(
            key,
            forget=data.forget,
            version=data.version,
            accept=data.accept,
            reason=data.reason,
        )
        return await receipt(console, "job", key)

    changes = [
        change(console, noun, verb, about, apply)
        for noun, verbs in CHANGES.items()
        for verb, (about, apply) in verbs.items()
    ]
    signals = [signal(console, noun, about) for noun, about in SIGNALS.items()]
    return create_batch, create_graph, run, fix, *signals, *changes
