"""Workflows with their steps as a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from litestar import Response
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, QueryParameter

from penstock.console.api.endpoint import DEFAULT_LIMIT
from penstock.console.core.step_graph import Drawing, drawing
from penstock.console.pages.acting.buttons import AnyRequest, acts, done
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.pages.sections import WORKFLOWS as SECTIONS
from penstock.console.parts import Console
from penstock.console.read_models import workflow_list as model
from penstock.console.read_models.workflow_waits import WorkflowWaits
from penstock.events.subjects import check_name
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.graph_record import GraphState
from penstock.views.workflow_board import StepRow, WorkflowRow

ChosenState = Annotated[str, QueryParameter(name="state")]
_AREA = "Workflows"
MOST_AT_AN_END = 200
"""Steps of each end of a long workflow; the API has all of them."""
WORKFLOW_STATES = tuple(dict.fromkeys([*map(str, GraphState), *map(str, State)]))


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages."""
    waits = WorkflowWaits(console)

    @page_at("/workflows")
    async def workflows(chosen: ChosenState = "") -> Response[str]:
        wanted = chosen if chosen in WORKFLOW_STATES else ""
        items = await console.read(lambda rows: model.newest_workflows(rows, wanted, DEFAULT_LIMIT))
        return pages.page(
            "workflows.html",
            _AREA,
            "Workflows",
            sections=SECTIONS,
            items=items,
            waits=await waits.of(items),
            chosen=wanted,
            states=WORKFLOW_STATES,
        )

    @page_at("/workflows/{workflow_id:str}")
    async def workflow(request: AnyRequest, workflow_id: FromPath[str]) -> Response[str]:
        check_name("workflow", workflow_id)
        detail = await model.read_workflow(console, workflow_id)
        if detail is None:
            raise NotFoundException(f"there is no workflow {workflow_id!r}, or not any more")
        return pages.page(
            "workflow.html",
            _AREA,
            f"{detail.workflow.function} {detail.workflow.state}",
            sections=SECTIONS,
            detail=detail,
            drawn=step_drawing(detail.steps),
            listed=listed_steps(detail.steps),
            by_key={step.key: step for step in detail.steps},
            acts=acts(console, request, _possible(detail.workflow), workflow_id),
            acted=done(request),
        )

    return workflows, workflow


def _possible(workflow: WorkflowRow) -> list[str]:
    """Acts on a workflow in its present state."""
    kind = "workflow" if workflow.kind == "coded" else "graph"
    if workflow.finished_at is None:
        pausing = "resume" if workflow.paused_at else "pause"
        fixing = ["workflow.fix"] if workflow.blocked else []
        return [*fixing, *(f"{kind}.{verb}" for verb in (pausing, "signal", "cancel"))]
    has_failed = workflow.state in (GraphState.FAILED, State.DEAD, GraphState.CANCELLED)
    if not has_failed:
        return []
    return ["graph.retry-failed"] if kind == "graph" else ["job.retry"]


class ListedSteps(NamedTuple):
    """The steps that a page lists: of very many both ends.

    Attributes:
        left_out: how many lie between them.
    """

    first: Sequence[StepRow]
    left_out: int
    last: Sequence[StepRow]


def listed_steps(steps: Sequence[StepRow]) -> ListedSteps:
    """All steps of a short workflow, the first and the last ones of a long one."""
    left_out = len(steps) - 2 * MOST_AT_AN_END
    if left_out <= 0:
        return ListedSteps(steps, 0, ())
    return ListedSteps(steps[:MOST_AT_AN_END], left_out, steps[-MOST_AT_AN_END:])


def step_drawing(steps: Sequence[StepRow]) -> Drawing | None:
    """Where each step stands; None where they are too many to be drawn."""
    return drawing(
        {step.key: step.needs or ((step.after,) if step.after else ()) for step in steps}
    )
