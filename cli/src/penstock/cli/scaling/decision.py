"""`penstock decision`: what was decided about a pool, and the chain of reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from penstock.bus.protocol import Bus
from penstock.cli.command import Group
from penstock.cli.errors import Failed
from penstock.cli.output import Column, write_json, write_lines, write_rows
from penstock.cli.parameters import MOST_ROWS, POOL, Name
from penstock.cli.scaling import explanation
from penstock.cli.scaling.assignments import assignments
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.subjects import Subjects
from penstock.views import wording
from penstock.views.decisions import find_decision, newest_decisions
from penstock.views.event_text import because

COLUMNS = (
    Column("id", lambda row: row.id),
    Column("at", lambda row: wording.clock(row.at)),
    Column("pool", lambda row: row.pool, rank=1),
    Column("from", lambda row: str(row.current), number=True, rank=1),
    Column("to", lambda row: str(row.target), number=True, rank=1),
    Column("strategy", lambda row: row.strategy, rank=3),
    Column(
        "predicted pickup", lambda row: wording.seconds(row.predicted_pickup_seconds), number=True
    ),
    Column("last reason", because, rank=1, sentence=True),
)

if TYPE_CHECKING:
    from penstock.decider.replay.explain import Explanation

    Explained = tuple[ScalingDecisionMade, Explanation | None]


@click.group(cls=Group, example="penstock decision explain reports")
def decision() -> None:
    """Scaling decisions, and why they were made."""


@decision.command(name="ls", example="penstock decision ls reports --limit 50")
@click.argument("pool", required=False, type=POOL)
@click.option(
    "--all", "every", is_flag=True, help="Also decisions that changed no number of workers."
)
@MOST_ROWS
@click.pass_obj
def list_decisions(session: Session, pool: str | None, every: bool, limit: int) -> None:
    """List the last decisions that changed a number of workers, newest first."""

    async def request(bus: Bus, settings: Settings) -> list[ScalingDecisionMade]:
        return await newest_decisions(bus, Subjects(settings.prefix), pool, every, limit)

    write_rows(session, session.run(request), COLUMNS, _nothing(pool, every))


@decision.command(
    example="penstock decision explain reports\n"
    "penstock decision explain reports --set pools.reports.max_workers=60"
)
@click.argument("which", metavar="ID|POOL", type=Name("decision or pool"))
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Also decide the same round under another setting, such as pools.reports.sla_seconds=10.",
)
@click.option(
    "--event",
    "sequence",
    type=click.IntRange(min=1),
    help="Where the decision stands in the event log: finds one of any age by its id.",
)
@click.pass_obj
def explain(session: Session, which: str, changes: Sequence[str], sequence: int | None) -> None:
    """Explain one decision, or a pool's last one, as sentences from measurement to number.

    It is computed again from the log, to say what would have changed it.
    """
    other = assignments(changes)

    async def request(bus: Bus, settings: Settings) -> Explained | None:
        subjects = Subjects(settings.prefix)
        logged = await find_decision(bus, subjects, which, sequence)
        if logged is None:
            return None
        return logged[0], await explanation.explain(bus, subjects, *logged, other)

    decision_and_explanation = session.run(request)
    if decision_and_explanation is None:
        raise Failed(f"no decision and no decided pool is called {which!r}; see 'decision ls'")
    if session.as_json:
        write_json(explanation.as_json(*decision_and_explanation))
    else:
        write_lines(explanation.sentences(*decision_and_explanation))


def _nothing(pool: str | None, every: bool) -> str:
    about = f" about pool {pool!r}" if pool else ""
    return f"no decision was made{about}" if every else f"no decision{about} changed anything"
