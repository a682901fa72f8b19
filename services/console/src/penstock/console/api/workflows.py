"""Coded workflows with their steps, and the definitions of declared ones."""

from __future__ import annotations

from datetime import datetime

import msgspec
from litestar.exceptions import ValidationException
from litestar.params import FromPath, FromQuery

from penstock.console.api.endpoint import (
    DEFAULT_LIMIT,
    InState,
    Limit,
    Listing,
    Routes,
    read,
    whole,
)
from penstock.console.parts import Console
from penstock.events.envelope import utc_now
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.definitions import StoredDefinition
from penstock.views.workflow_board import (
    StepRow,
    WorkflowDetail,
    WorkflowRow,
    workflow_detail,
    workflow_row,
)


class DefinitionItem(msgspec.Struct, frozen=True, kw_only=True):
    """A stored definition; its instances are graphs."""

    name: str
    version: int
    steps: int
    required: tuple[str, ...]
    description: str
    defined_at: datetime
    source: str
    digest: str


def definition_item(stored: StoredDefinition) -> DefinitionItem:
    """A record as it is sent: without the arguments of its steps."""
    definition = stored.definition
    return DefinitionItem(
        name=definition.name,
        version=definition.version,
        steps=len(definition.steps),
        required=tuple(definition.required),
        description=definition.description,
        defined_at=stored.defined_at,
        source=stored.source,
        digest=stored.digest,
    )


async def workflow_answer(console: Console, workflow_id: str) -> WorkflowDetail:
    """A workflow with its steps, without arguments and result. Raises NotFound, JobRefused."""
    view = await console.client.workflows.get(workflow_id, with_attempts=True)
    return msgspec.structs.replace(workflow_detail(view, utc_now()), arguments=None, result=None)


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/workflows")
    async def workflows(
        in_state: InState = "",
        function: FromQuery[str] = "",
        blocked: FromQuery[bool] = False,
        paused: FromQuery[bool] = False,
        limit: Limit = DEFAULT_LIMIT,
    ) -> Listing[WorkflowRow]:
        """Coded workflows, those that changed last first; not `complete` where more may fit."""
        if in_state and in_state not in tuple(State):
            raise ValidationException(f"state is one of {', '.join(State)}")
        listed = await console.client.workflows.list(
            state=State(in_state) if in_state else None,
            function=function,
            blocked=blocked,
            paused=paused,
            limit=limit,
        )
        rows = [workflow_row(view) for view in listed]
        return Listing(items=rows, standing=console.standing, complete=not listed.cut_off)

    @read("/workflows/definitions")
    async def definitions() -> Listing[DefinitionItem]:
        """Stored definitions, by name."""
        stored = await console.client.definitions.all()
        return whole(console, [definition_item(one) for one in stored])

    @read("/workflows/definitions/{name:str}")
    async def definition(name: FromPath[str]) -> DefinitionItem:
        """The newest version of one definition."""
        return definition_item(await console.client.definitions.get(name))

    @read("/workflows/{workflow_id:str}")
    async def workflow(workflow_id: FromPath[str]) -> WorkflowDetail:
        """One workflow: its steps, its critical path, and what it waits for."""
        return await workflow_answer(console, workflow_id)

    @read("/workflows/{workflow_id:str}/steps")
    async def steps(workflow_id: FromPath[str]) -> Listing[StepRow]:
        """The steps of a workflow."""
        return whole(console, list((await workflow_answer(console, workflow_id)).steps))

    return workflows, definitions, definition, workflow, steps
