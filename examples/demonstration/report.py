"""The printed report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from examples.demonstration.audit import Audit
from examples.demonstration.figures import Figures, quantile
from examples.demonstration.replaying import sentence
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.decider.replay.verdict import Verdict
from penstock.views.wording import seconds


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the report.

    Attributes:
        pools: the figures of each pool.
        audit: the proof from the event log.
        incidents: a sentence for each kill and its consequences.
        notes: sentences on jobs that needed more than one attempt, and on Spark.
        replay: the verdict on all recomputed decisions.
        trouble: faults other than late jobs; the demo failed when there is any.
    """

    pools: tuple[Figures, ...]
    audit: Audit
    incidents: tuple[str, ...]
    notes: tuple[str, ...]
    replay: Verdict
    trouble: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        kept = all(pool.kept for pool in self.pools)
        return kept and self.audit.clean and self.replay.is_equal and not self.trouble

    @property
    def headline(self) -> str:
        if self.passed:
            return (
                "The promise held, every job ended exactly once, and every decision was recomputed "
                "equal."
            )
        broken = [pool.pool for pool in self.pools if not pool.kept]
        faults = [f"the promise of {', '.join(broken)} was broken"] if broken else []
        if not self.audit.clean:
            faults.append(f"{len(self.audit.problems)} jobs did not end as expected")
        if not self.replay.is_equal:
            faults.append("not every decision was recomputed equal")
        return f"Failed: {'; '.join([*faults, *self.trouble])}."


def show(report: Report, console: Console) -> None:
    """Prints it."""
    console.print()
    console.print(Text(report.headline, "bold green" if report.passed else "bold red"))
    console.print(_table(report.pools))
    audit = report.audit
    ends = ", ".join(f"{count} {_END_NAMES[name]}" for name, count in sorted(audit.ends.items()))
    facts = [
        ("jobs", f"{audit.dispatched} dispatched, {audit.ended} ended exactly once ({ends})"),
        *(("", note) for note in report.notes),
        *(("incidents" if i == 0 else "", text) for i, text in enumerate(report.incidents)),
        ("replay", sentence(report.replay)),
        *(("problem", text) for text in audit.problems[:_SHOWN_PROBLEMS]),
        *(("problem", text) for text in _differences(report.replay)),
    ]
    console.print(Text(KEY, "dim"))
    console.print()
    grid = Table.grid(padding=(0, 2))
    for name, text in facts:
        grid.add_row(Text(name, "red" if name == "problem" else "dim"), text)
    console.print(grid)


def _differences(verdict: Verdict) -> Iterator[str]:
    for difference in verdict.differences[:_SHOWN_PROBLEMS]:
        where = f"decision {difference.decision}" if difference.decision else "a round"
        yield f"{where} of pool {difference.pool or '(all)'} differs: {difference.what[0]}"
    for gap in verdict.unproven[:_SHOWN_PROBLEMS]:
        yield f"round {gap.epoch}.{gap.round} cannot be recomputed: {gap.why}"


_SHOWN_PROBLEMS = 10
KEY = (
    "p50, p95, max: pickup times; used: worker-seconds; "
    "fixed: those of a fleet that always has the peak"
)
_END_NAMES = {"JobCompleted": "completed", "JobDead": "dead", "JobCancelled": "cancelled"}


def _table(pools: Sequence[Figures]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0, show_footer=len(pools) > 1)
    used = sum(pool.worker_seconds for pool in pools)
    fixed = sum(pool.fixed_worker_seconds for pool in pools)
    late = sum(pool.late for pool in pools)
    jobs = sum(pool.jobs for pool in pools)
    for title, footer in (
        ("pool", "all"),
        ("promise", ""),
        ("jobs", str(jobs)),
        ("late", f"{late / max(jobs, 1):.1%}"),
        ("p50", ""),
        ("p95", ""),
        ("max", ""),
        ("peak", str(sum(pool.peak_workers for pool in pools))),
        ("used", f"{used:.0f}"),
        ("fixed", f"{fixed:.0f}"),
        ("saved", f"{1 - used / fixed:.0%}" if fixed else ""),
    ):
        left = title in ("pool", "promise")
        table.add_column(title, footer, justify="left" if left else "right", no_wrap=True)
    for pool in pools:
        table.add_row(*_cells(pool))
    return table


def _cells(pool: Figures) -> tuple[Text | str, ...]:
    return (
        pool.pool,
        f"{pool.quantile:.0%} in {pool.sla_seconds:g} s",
        str(pool.jobs),
        Text(f"{pool.late_share:.1%}", "green" if pool.kept else "bold red"),
        *(seconds(quantile(pool.pickups, share)) for share in (0.5, 0.95, 1.0)),
        str(pool.peak_workers),
        f"{pool.worker_seconds:.0f}",
        f"{pool.fixed_worker_seconds:.0f}",
        f"{pool.saved_share:.0%}",
    )
