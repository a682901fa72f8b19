"""Films of four loads: workers wanted and ready, jobs that run and wait, over some minutes.

Each picture has the same load under the strategy `deadline` as it was in ``--before`` (a commit
before decision 0059), as it is now, and under the clairvoyant. Pictures, no figures: an example
shows what a rule does, not how good it is.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

import calmest
import regimes
from penstock.decider.core.registry import BUILTIN, Strategies
from penstock.decider.simulator.bounds.bound import bound_worker_seconds
from penstock.decider.simulator.bounds.clairvoyant import Clairvoyant
from penstock.decider.simulator.model.controller import Controller, Look, Plan
from penstock.decider.simulator.model.engine import HOST
from penstock.decider.simulator.studies import study
from penstock.decider.simulator.studies.contenders import Scene, controller
from penstock.decider.simulator.studies.study import Figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BEFORE = "9cdd4d02da884bcdcebad5058665d29d3896b128"
PACKAGE = "services/decider/src/penstock/decider/core/strategies/deadline"
SEED = 700
_KNOWING = "clairvoyant"


class Scenario(NamedTuple):
    """``start``, ``end``: the seconds that are shown."""

    name: str
    title: str
    point: regimes.Point
    start: float
    end: float

    def shows(self, seconds: float) -> bool:
        return self.start <= seconds < self.end


SCENARIOS = (
    Scenario(
        "steady",
        "jobs of 20 s, 8.4 a minute, 30 s promised, 0.1 s to start a worker",
        regimes.Point(2.8, 20.0, 1.0, "steady", 30.0, 0.1),
        1200,
        1800,
    ),
    Scenario(
        "burst",
        "bursts of jobs of 5 s, 10 s promised, 1.5 s to start a worker",
        regimes.Point(3.0, 5.0, 1.0, "bursty", 10.0, 1.5),
        600,
        1200,
    ),
    Scenario(
        "slow-starts",
        "jobs of 5 s, 10 s promised, 30 s to start a worker",
        regimes.Point(3.0, 5.0, 1.0, "steady", 10.0, 30.0),
        0,
        1800,
    ),
    Scenario(
        "daily",
        "a day in half an hour, jobs of 5 s, 30 s promised, 0.1 s to start a worker",
        regimes.Point(3.0, 5.0, 0.5, "daily", 30.0, 0.1),
        0,
        1800,
    ),
)


class Filmed:
    """A controller whose looks and plans are noted."""

    def __init__(self, filmed: Controller) -> None:
        self._filmed = filmed
        self.frames: list[tuple[float, int, int, int, int]] = []
        self._wanted = 0

    def plan(self, look: Look) -> Plan | None:
        plan, fleet = self._filmed.plan(look), look.fleet
        if plan is not None:
            self._wanted = sum(plan.values())
        busy = sum(1 for _ in fleet.busy())
        self.frames.append((look.now, self._wanted, fleet.ready, busy, look.meter.waiting))
        return plan


def strategy_of(commit: str, folder: Path) -> Any:
    """The strategy as it was, as a package of its own."""
    root = Path(__file__).resolve().parents[1]
    archive = subprocess.run(
        ["git", "archive", commit, PACKAGE], cwd=root, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    package = folder / "deadline_before"
    (folder / PACKAGE).rename(package)
    for module in package.glob("*.py"):
        text = module.read_text("utf-8")
        module.write_text(
            text.replace("penstock.decider.core.strategies.deadline", package.name), "utf-8"
        )
    sys.path.insert(0, str(folder))
    from deadline_before.strategy import Deadline  # noqa: PLC0415 - it exists since now

    return Deadline()


def film(name: str, scene: Scene) -> tuple[Filmed, Figures]:
    promise = scene.profile.sla_seconds
    if name != _KNOWING:
        filmed = Filmed(controller(name, scene))
        return filmed, study.figures(scene.run(filmed), promise)
    for share in calmest.TIGHTER:  # the loosest that keeps the promise
        spawn = scene.spawning.seconds
        filmed = Filmed(Clairvoyant(scene.load, promise * share, spawn, HOST))
        figures = study.figures(scene.run(filmed), promise)
        if figures.late_share <= 1 - scene.profile.quantile:
            break
    return filmed, figures


def draw(scenario: Scenario, before: Strategies, path: Path) -> None:
    """Writes one picture.

    Args:
        before: the strategies with `deadline` as it was.
    """
    from matplotlib import rc_context  # noqa: PLC0415 - half a second to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    scene = regimes.scene(scenario.point, BUILTIN, SEED)
    bound = bound_worker_seconds(
        scene.load,
        sla_seconds=scene.profile.sla_seconds,
        late_share=1 - scene.profile.quantile,
        spawn_seconds=scene.spawning.seconds,
    )
    figure = Figure(figsize=(8.0, 6.0), layout="constrained")
    figure.suptitle(scenario.title, fontsize=10)
    axes = figure.subplots(3, 1, sharex=True, sharey=True)
    runs = (
        ("before 0059", "deadline", before),
        ("now", "deadline", BUILTIN),
        (_KNOWING, _KNOWING, BUILTIN),
    )
    for axis, (title, name, strategies) in zip(axes, runs, strict=True):
        filmed, figures = film(name, msgspec.structs.replace(scene, strategies=strategies))
        _draw(axis, [frame for frame in filmed.frames if scenario.shows(frame[0])])
        cost = figures.worker_seconds / bound
        axis.set_title(
            f"{title}: {figures.late_share:.1%} late, {cost:.2f} x bound, "
            f"{figures.actions:.0f} actions in {scene.load.duration_seconds / 60:.0f} min",
            fontsize=9,
            loc="left",
        )
    axes[-1].set_xlabel("minutes")
    axes[0].set_ylim(bottom=0)
    figure.legend(
        *axes[0].get_legend_handles_labels(), fontsize=8, ncols=4, loc="outside lower center"
    )
    with rc_context({"svg.fonttype": "none"}):  # letters stay letters: a tenth of the size
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw(axis: Axes, frames: Sequence[tuple[float, int, int, int, int]]) -> None:
    minutes = [frame[0] / 60 for frame in frames]
    wanted, ready, busy, waiting = list(zip(*frames, strict=True))[1:]
    axis.fill_between(minutes, busy, step="post", color="C0", alpha=0.35, label="busy")
    axis.step(minutes, ready, where="post", color="C0", linewidth=1, label="ready")
    axis.step(minutes, wanted, where="post", color="C3", linewidth=1, label="wanted")
    axis.step(minutes, waiting, where="post", color="0.5", linewidth=0.8, label="waiting jobs")
    axis.margins(x=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", default=BEFORE, help="a commit")
    parser.add_argument("--folder", type=Path, default=Path("docs/images"))
    parser.add_argument("--kind", default="png", help="of the pictures: png, svg")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # by its own name: `deadline` has no cooldown, and other strategies have
        before = {**BUILTIN, "deadline": strategy_of(options.before, Path(folder))}
        for scenario in SCENARIOS:
            path = options.folder / f"film-{scenario.name}.{options.kind}"
            draw(scenario, before, path)


if __name__ == "__main__":
    main()
