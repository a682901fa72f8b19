"""`penstock decision`: what was decided about a pool, and the chain of reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.bus.protocol import Bus
from penstock.cli.command import Group
from penstock.cli.errors import Failed
from penstock.cli.output import Column, write_json, write_line, write_rows
from penstock.cli.parameters import POOL, Name
from penstock.cli.scaling import explanation
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
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Most rows to list.",
)
@click.pass_obj
def list_decisions(session: Session, pool: str | None, every: bool, limit: int) -> None:
    """List the last decisions that changed a number of workers, newest first."""

    async def request(bus: Bus, settings: Settings) -> list[ScalingDecisionMade]:
        return await newest_decisions(bus, Subjects(settings.prefix), pool, every, limit)

    write_rows(session, session.run(request), COLUMNS, _nothing(pool, every))


@decision.command(example="penstock decision explain reports")
@click.argument("which", metavar="ID|POOL", type=Name("decision or pool"))
@click.pass_obj
def explain(session: Session, which: str) -> None:
    """Explain one decision, or a pool's last one, as sentences from measurement to number.

    It is computed again from the log, to say what would have changed it.
    """

    async def request(bus: Bus, settings: Settings) -> Explained | None:
        subjects = Subjects(settings.prefix)
        logged = await find_decision(bus, subjects, which)
        if logged is None:
            return None
        return logged[0], await explanation.explain(bus, subjects, *logged)

    decision_and_explanation = session.run(request)
    if decision_and_explanation is None:
        raise Failed(f"no decision and no decided pool is called {which!r}; see 'decision ls'")
    if session.as_json:
        write_json(explanation.as_json(*decision_and_explanation))
    else:
        write_line("\n".join(explanation.sentences(*decision_and_explanation)))


def _nothing(pool: str | None, every: bool) -> str:
    about = f" about pool {pool!r}" if pool else ""
    return f"no decision was made{about}" if every else f"no decision{about} changed anything"
