"""Cost against actions in pictures: a point for each rule, the settings of `deadline` as a line."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import regimes
from penstock.decider.simulator.studies.study import SimulationResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TUNED, _DEFAULT = "deadline:", "deadline:0.2"
_BOUND = "clairvoyant"
_LATE = 0.01
_LEAST_RATIO = 0.01
_TICKS = {
    "x": (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0),
    "y": (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
}


class Spot(msgspec.Struct, frozen=True):
    """A rule over all settings.

    Attributes:
        cost: over the bound: quartiles.
        actions: over the clairvoyant's: quartiles.
        late_share: of the jobs, the mean over the settings.
    """

    name: str
    cost: tuple[float, float, float]
    actions: tuple[float, float, float]
    late_share: float


def draw(rows: Sequence[SimulationResult], path: Path) -> None:
    """One picture for each shape of the load, and one of all. The ending of the name is the kind.

    Args:
        rows: of settings in which a worker can start within the promise.
    """
    actions = {regimes.setting(row): row.actions for row in rows if row.strategy == _BOUND}
    groups = {shape: [row for row in rows if row.trace.endswith(shape)] for shape in regimes.SHAPES}
    _picture(_spots(rows, actions), f"all loads, {len(actions)} settings", path)
    for shape, own in groups.items():
        if own:
            count = sum(row.strategy == _BOUND for row in own)
            title = f"{shape} loads, {count} settings"
            _picture(_spots(own, actions), title, path.with_stem(f"{path.stem}-{shape}"))


def _spots(rows: Sequence[SimulationResult], actions: Mapping[Any, float]) -> list[Spot]:
    spots = []
    for name in dict.fromkeys(row.strategy for row in rows):
        own = [row for row in rows if row.strategy == name]
        ratios = (row.actions / max(actions[regimes.setting(row)], 1.0) for row in own)
        spots.append(
            Spot(
                name,
                _quartiles([row.cost_ratio for row in own]),
                _quartiles([max(ratio, _LEAST_RATIO) for ratio in ratios]),
                statistics.fmean(row.late_share for row in own),
            )
        )
    return spots


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def _picture(spots: Sequence[Spot], title: str, path: Path) -> None:
    from matplotlib import rc_context  # noqa: PLC0415 - half a second to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(10.5, 5.0), layout="constrained")
    axis, enlarged = figure.subplots(1, 2, width_ratios=(2.2, 1))
    tuned = [spot for spot in spots if spot.name.startswith(_TUNED)]
    axis.plot(
        [spot.cost[1] for spot in tuned], [spot.actions[1] for spot in tuned], color="C0", zorder=2
    )
    others = [spot for spot in spots if spot not in tuned]
    for spot in tuned:
        _mark(axis, spot, "C0", spot.name == _DEFAULT)
    for number, spot in enumerate(others):
        _mark(axis, spot, "black" if spot.name == _BOUND else f"C{1 + number % 9}", True)
    _zoom(enlarged, tuned, [spot for spot in spots if spot.name == _BOUND])
    axis.axhline(1.0, color="0.8", linewidth=0.8, zorder=1)
    axis.set(
        title=f"{title}: median and quartiles (hollow: more than 1 % of the jobs late)",
        xscale="log",
        yscale="log",
        xlabel="worker-seconds over the least possible",
        ylabel="actions over the clairvoyant's",
    )
    axis.title.set_fontsize(9)
    for side, ticks in _TICKS.items():
        low, high = (axis.get_xlim, axis.get_ylim)[side == "y"]()
        shown = [tick for tick in ticks if low <= tick <= high]
        (axis.set_xticks, axis.set_yticks)[side == "y"](shown, [f"{tick:g}" for tick in shown])
    axis.minorticks_off()
    with rc_context({"svg.fonttype": "none"}):  # letters stay letters: a tenth of the size
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _mark(axis: Axes, spot: Spot, color: str, named: bool) -> None:
    (left, cost, right), (low, actions, high) = spot.cost, spot.actions
    if named:
        axis.plot([left, right], [actions, actions], color=color, alpha=0.3, linewidth=1.5)
        axis.plot([cost, cost], [low, high], color=color, alpha=0.3, linewidth=1.5)
    _dot(axis, spot, color, 55 if named else 25)
    if named:
        late = f", {spot.late_share:.1%} late" if spot.late_share > _LATE else ""
        axis.annotate(
            f"{spot.name}{late}",
            (cost, actions),
            (6, -14) if spot.name == _BOUND else (6, 6),
            textcoords="offset points",
            fontsize=9,
            color=color,
            weight="bold" if spot.name == _DEFAULT else "normal",
            zorder=5,
        )


def _zoom(axis: Axes, tuned: Sequence[Spot], bound: Sequence[Spot]) -> None:
    """The settings of `deadline` and the clairvoyant alone; settings in one place share a label."""
    costs, actions = [spot.cost[1] for spot in tuned], [spot.actions[1] for spot in tuned]
    axis.plot(costs, actions, color="C0", zorder=2)
    places: dict[tuple[float, float], list[str]] = {}
    for spot in tuned:
        _dot(axis, spot, "C0", 40)
        place = round(spot.cost[1], 3), round(spot.actions[1], 2)
        places.setdefault(place, []).append(spot.name.removeprefix(_TUNED))
    for number, (place, names) in enumerate(places.items()):
        label, offset = ", ".join(names), ((2, 7), (2, -14))[number % 2]
        axis.annotate(label, place, offset, textcoords="offset points", fontsize=9, color="C0")
    for spot in bound:
        _dot(axis, spot, "black", 40)
    axis.set(title="deadline with calm = …", xlabel="the same, enlarged")
    axis.title.set_fontsize(9)
    axis.margins(0.2)
    axis.locator_params(nbins=5)


def _dot(axis: Axes, spot: Spot, color: str, size: float) -> None:
    fill = "white" if spot.late_share > _LATE else color
    axis.scatter(spot.cost[1], spot.actions[1], s=size, facecolors=fill, edgecolors=color, zorder=4)
