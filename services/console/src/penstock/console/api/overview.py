"""Overview and promises, and which moments of the past may be looked for."""

from __future__ import annotations

import msgspec

from penstock.console.api.endpoint import AsOfText, Listing, Routes, read
from penstock.console.core.attention import Attention
from penstock.console.core.promises import Promise
from penstock.console.parts import Console
from penstock.console.read_models import overview as model
from penstock.console.read_models.overview import Overview, Totals
from penstock.console.read_models.projection import Standing
from penstock.console.read_models.queues import queue_items
from penstock.console.read_models.time_marks import TimeMarks, time_marks
from penstock.console.web.access import ChangesWith


class OverviewAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The first page as values, and how current they are."""

    overview: Overview
    standing: Standing


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/overview", answers_as_of=True)
    async def overview(as_of: AsOfText = "") -> OverviewAnswer:
        """Promises, what needs attention, the last decisions, capacity and totals."""
        past = await console.past(as_of)
        shown, standing = await model.overview_standing(console, past)
        return OverviewAnswer(overview=shown, standing=standing)

    @read("/promises", answers_as_of=True)
    async def promises(as_of: AsOfText = "") -> Listing[Promise]:
        """How each pool keeps its promise; those in trouble first."""
        past = await console.past(as_of)
        view = past or console.present
        queues, standing = await console.read_standing(
            lambda rows: queue_items(rows, view.settings, past)
        )
        items = model.promise_rows(view, queues)
        return Listing(items=items, standing=past.standing if past else standing)

    @read("/attention", answers_as_of=True)
    async def attention(as_of: AsOfText = "") -> Listing[Attention]:
        """What an operator should look at, the most urgent first."""
        past = await console.past(as_of)
        shown, standing = await model.overview_standing(console, past)
        return Listing(items=shown.attention, standing=standing)

    @read("/stats", source=ChangesWith.LOG)
    async def stats() -> Totals:
        """How many jobs of all queues are in each state."""
        return await console.read(model.job_totals)

    @read("/marks")
    async def marks() -> TimeMarks:
        """Decisions, breaches and changes of hosts of the last 48 hours, each with its moment."""
        return await time_marks(console)

    return overview, promises, attention, stats, marks
