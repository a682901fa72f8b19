"""Strategy `batch_within`: the fewest slots with which each batch of a query is done in time.

    slots   = task seconds of the next batch / (promise - fixed seconds of a batch), and headroom
    workers = slots of all queries of the pool / slots of a worker, at least 1 while a query runs

A batch of `r` rows takes `f + w r / c` on `c` slots: `w` are the task seconds of a row, `f` is what
no slot can shorten. It is done within the promise `N` where `c >= w r / (N - f)`. As long as each
batch is, the next one has no more rows than come in `T`, the longer of the trigger's interval and
`N`: with `c = w x T / (N - f)` slots for `x` rows a second the promise keeps itself, whatever the
trigger. Where a batch runs for longer than `N`, `T` is its time, and what the source holds back
(`maxOffsetsPerTrigger`) is to be worked off within one promise:

    c = w (x T + lag) / (N - f)

`x` is what comes now, and where that grows, what will come when a Worker that is started now is
ready. Rows of a batch under way are not known before its end, but its tasks are: where they take
more than the rows of before, and the source holds nothing back, `x` is as much higher, less what
chance may add to so few rows. A batch that would be late, and that further Workers can still help,
asks for as many; so does the first batch of a run, such as what gathered while the query did not
run, before any row of it was measured.

Fewer Workers are asked for when fewer were enough for `hold_seconds`. They are decommissioned: a
task that runs is finished, and the batch goes on on the others.

Choose it for pools whose source is of kind `spark-stream`; it knows nothing else.

Weakness: a step in the rate is known when the first batch with it is under way, and starting a
Worker takes seconds: promise more than a batch and a start take together. Tasks that are few, or of
very different lengths, leave slots without work: that is in `f`, and further slots do not help
against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.config.section import NonNegative, Section
from penstock.decider.core.strategies.deadline.pool_view import spawn_of
from penstock.decider.core.strategy import Demand, StrategyInputs, ask, whole
from penstock.events.snapshot import StreamLoad
from penstock.measuring.counts import least_expected

_MOST_FIXED_SHARE = 0.5
"""Of the promise: where more of it is fixed, slots alone cannot keep it, and their number is not
let grow without bound."""
_MOST_GROWTH = 0.5
"""A rate is expected to grow by no more than this share of itself."""
_LEAST_SHARE = 0.25
"""Of the promise: what is left to a batch under way is taken for no less, see `_LEAST_SHARE` of
`deadline`."""
_MOST_PROMISES = 3.0
"""A batch that runs for longer than so many promises is held up by something else than slots."""
_STEPS = 8


class Options(Section, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        headroom_share: further slots, as a share of those that are needed.
        hold_seconds: Workers go when fewer were enough for this time.
    """

    headroom_share: NonNegative = 0.15
    hold_seconds: NonNegative = 20.0


class Past(msgspec.Struct, frozen=True, omit_defaults=True):
    """The memory: (when, slots) of needs, ever smaller: those that no later one exceeded."""

    needs: tuple[tuple[float, float], ...] = ()

    def note(self, slots: float, now: float, keep_seconds: float) -> Past:
        kept = [(at, need) for at, need in self.needs if now - at < keep_seconds and need > slots]
        if kept and now - kept[-1][0] < keep_seconds / _STEPS:
            return Past(tuple(kept))  # the memory is stored with each decision
        return Past((*kept, (now, slots)))

    def most(self, slots: float) -> float:
        return max((need for _, need in self.needs), default=slots)


class BatchWithin:
    """See the module."""

    name = "batch_within"
    options = Options

    def demand(self, inputs: StrategyInputs) -> Demand:
        loads = [load for load in inputs.snapshot.streams if not load.ended]
        spawn_seconds = spawn_of(inputs.snapshot).p95_seconds
        promise, headroom = inputs.pool.profile.sla_seconds, inputs.options.headroom_share
        needs = [need_slots(load, promise, spawn_seconds, headroom) for load in loads]
        slots, per_worker = sum(needs), inputs.pool.slots
        # A need that no batch has shown yet is no reason to go below what there is.
        if any(None in (load.task_seconds_per_row, load.rows_per_second) for load in loads):
            slots = max(slots, float(inputs.current * per_worker))
        past = _recall(inputs.memory).note(slots, inputs.now, inputs.options.hold_seconds)
        needed = max(whole(slots / per_worker), 1 if loads else 0)
        held = max(whole(past.most(slots) / per_worker), needed)
        workers = max(needed, min(inputs.current, held))
        demand = ask(
            self.name,
            workers,
            _why(loads, needs, promise, needed, workers),
            _figures(loads, needs, needed),
            {"needs": [list(one) for one in past.needs]},
        )
        predicted = max(
            (
                batch_seconds(load, workers * per_worker * _share(need, slots), promise)
                for load, need in zip(loads, needs, strict=True)
            ),
            default=None,
        )
        return msgspec.structs.replace(demand, predicted_pickup_seconds=predicted)


def need_slots(
    load: StreamLoad, promise_seconds: float, spawn_seconds: float, headroom_share: float = 0.0
) -> float:
    """The slots that one query needs; see the module. More rows, or more lag, never need fewer.

    Args:
        promise_seconds: a batch is done within this.
        spawn_seconds: until a Worker that is started now takes tasks.
        headroom_share: further slots, as a share.
    """
    if load.task_seconds_per_row is None:
        return _for_batch_under_way(load, promise_seconds, spawn_seconds)
    left = promise_seconds - _fixed_seconds(load, promise_seconds)
    ahead = work_per_second(load, spawn_seconds) * _gathering_seconds(load, promise_seconds)
    ahead += load.task_seconds_per_row * (load.lag_rows or 0)
    return max(
        (1.0 + headroom_share) * ahead / left,
        _for_batch_under_way(load, promise_seconds, spawn_seconds),
    )


def work_per_second(load: StreamLoad, spawn_seconds: float = 0.0) -> float:
    """Task seconds that come each second, by the time that a Worker started now is ready."""
    per_row = load.task_seconds_per_row or 0.0
    now = load.rows_per_second or 0.0
    growth = load.growth_per_second * (spawn_seconds + load.interval_seconds)
    rows = now + min(growth, _MOST_GROWTH * now)
    # The rows of a batch under way came in the time between the two triggers before it; where the
    # source holds rows back, they are as many as it may have, which says nothing.
    since = max(load.interval_seconds, load.batch_seconds)
    if since <= 0 or load.lag_rows or not per_row:
        return per_row * rows
    under_way = least_expected(load.running_task_seconds / per_row)
    return per_row * max(rows, under_way / since)


def batch_seconds(load: StreamLoad, slots: float, promise_seconds: float) -> float:
    """How long the next batch will take on so many slots."""
    work = work_per_second(load) * max(load.interval_seconds, load.batch_seconds)
    work += (load.task_seconds_per_row or 0.0) * (load.lag_rows or 0)
    return _fixed_seconds(load, promise_seconds) + work / max(slots, 1.0)


def _fixed_seconds(load: StreamLoad, promise_seconds: float) -> float:
    return min(load.fixed_seconds, _MOST_FIXED_SHARE * promise_seconds)


def _gathering_seconds(load: StreamLoad, promise_seconds: float) -> float:
    """For so long at most rows gather until the next trigger."""
    expected = min(_expected_seconds(load), _MOST_PROMISES * promise_seconds)
    return max(promise_seconds, load.interval_seconds, expected)


def _expected_seconds(load: StreamLoad) -> float:
    """Of the batch under way, from its trigger to its end; 0 where none is."""
    if not load.running_seconds:
        return 0.0
    return max(load.running_seconds, load.running_task_seconds / max(load.slots, 1.0))


def _for_batch_under_way(load: StreamLoad, promise_seconds: float, spawn_seconds: float) -> float:
    if _expected_seconds(load) <= promise_seconds:
        return 0.0
    left = promise_seconds - load.running_seconds - spawn_seconds
    # No Worker could still help it. Of a run's first batch that is no reason: the sooner it is
    # done, the fewer rows gather for the next one, and nothing else is known of it.
    if left <= 0 and load.task_seconds_per_row is not None:
        return 0.0
    done = load.slots * (load.running_seconds + spawn_seconds)
    return max(load.running_task_seconds - done, 0.0) / max(left, _LEAST_SHARE * promise_seconds)


def _share(need: float, needs: float) -> float:
    return need / needs if needs > 0 else 1.0


def _recall(memory: Mapping[str, Any]) -> Past:
    try:
        return msgspec.convert(memory, Past)
    except msgspec.ValidationError:
        return Past()


def _figures(loads: Sequence[StreamLoad], needs: Sequence[float], needed: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"needed_workers": needed}
    for load, need in list(zip(loads, needs, strict=True))[:5]:
        figures[load.query] = {
            "slots": round(need, 2),
            "rows_per_second": round(load.rows_per_second or 0.0, 2),
            "lag_rows": load.lag_rows or 0,
            "row_task_seconds": round(load.task_seconds_per_row or 0.0, 6),
            "fixed_seconds": round(load.fixed_seconds, 2),
        }
    return figures


def _why(
    loads: Sequence[StreamLoad], needs: Sequence[float], promise: float, needed: int, workers: int
) -> str:
    if not loads:
        return "no query runs" if workers == needed else "no query runs, since a moment"
    load, need = max(zip(loads, needs, strict=True), key=lambda pair: pair[1])
    if load.task_seconds_per_row is None or load.rows_per_second is None:
        why = f"query {load.query} runs, and too few batches of it with rows are done yet"
        return f"{why}; the one under way needs {need:.1f} slots" if need else why
    why = (
        f"query {load.query} needs {need:.1f} slots for {load.rows_per_second:.3g} rows/s of "
        f"{1000 * load.task_seconds_per_row:.3g} ms, {load.fixed_seconds:.2g} s a batch beside "
        f"that, so that a batch is done within {promise:g} s"
    )
    if load.lag_rows:
        why += f", with {load.lag_rows} rows behind"
    if workers > needed:
        why += f"; {needed} would do, but more were needed a moment ago"
    return why
