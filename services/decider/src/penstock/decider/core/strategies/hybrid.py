"""Strategy `hybrid`: the reference's algorithm, unchanged: max(steady, predictive, drain).

    steady     = arrivals/s x job seconds
    predictive = the same with the forecast, or with 1.2 or 0.8 of the rate by its trend
    drain      = waiting / (time left / job seconds), from `breach_threshold` of the promise on;
                 waiting / job seconds once it is broken

Choose it where you rely on its numbers.

Weakness, kept because it is the reference:

- it gives no headroom: at exactly ``rate x time`` workers a queue is critically loaded (at 10
  Erlang, 68 % of the jobs wait);
- `drain` jumps where the oldest job crosses the SLA: before, each worker is counted for what it can
  do in the time left; after, one SLA's worth is no longer asked for, and 60 jobs of 30 s fall from
  60 workers to 2;
- without a measured job time it divides workers by throughput, so that rate x time is the worker
  count again: fed that way it holds whatever it has. That circle exists here only.
"""

from __future__ import annotations

import math

from penstock.config.profiles import Profile
from penstock.decider.core.strategy import Demand, StrategyInputs, ask
from penstock.events.snapshot import PoolSnapshot
from penstock.measuring.assumed import LEAST_JOB_SECONDS, UNKNOWN_JOB_SECONDS

_TREND_UP, _TREND_DOWN = 1.2, 0.8
_SHORTEST_JOB_SECONDS = 0.1


class Hybrid:
    """See the module."""

    name = "hybrid"
    counts_slots = True

    def demand(self, inputs: StrategyInputs) -> Demand:
        snapshot, profile = inputs.snapshot, inputs.pool.profile
        job_seconds, source = average_job_seconds(snapshot)
        rate = snapshot.arrival_per_second or 0.0
        next_rate = predicted_rate(snapshot, profile)
        parts = {
            "steady": rate * job_seconds,
            "predictive": next_rate * job_seconds,
            "drain": drain(snapshot, profile, job_seconds),
        }
        rule = max(parts, key=lambda part: parts[part])
        return ask(
            f"hybrid.{rule}",
            parts[rule],
            _why(rule, snapshot, profile, (rate, next_rate), job_seconds),
            {
                **{f"{part}_workers": round(value, 3) for part, value in parts.items()},
                "job_seconds": job_seconds,
                "job_seconds_from": source,
            },
        )


def average_job_seconds(snapshot: PoolSnapshot) -> tuple[float, str]:
    """Mean run time of a job and where it comes from: measured, workers/throughput, or assumed."""
    if snapshot.service is not None and snapshot.service.count:
        return snapshot.service.mean_seconds, "measured"
    if snapshot.workers_ready and snapshot.throughput_per_second:
        return snapshot.workers_ready / snapshot.throughput_per_second, "workers/throughput"
    return UNKNOWN_JOB_SECONDS, "assumed"


def predicted_rate(snapshot: PoolSnapshot, profile: Profile) -> float:
    """Arrivals a second to expect, by the trend; a pool whose forecast is off expects what is."""
    rate = snapshot.arrival_per_second or 0.0
    if profile.forecast == "off":
        return rate
    if snapshot.arrival_trend == "up":
        forecast = snapshot.forecast_per_second
        return rate * _TREND_UP if forecast is None else forecast
    return rate * _TREND_DOWN if snapshot.arrival_trend == "down" else rate


def drain(snapshot: PoolSnapshot, profile: Profile, job_seconds: float) -> float:
    """Workers that empty the queue before its oldest job is late; 0 while there is time.

    Does not ask whether anybody is ready: a breach lifts the demand also from nothing.
    """
    oldest, sla = snapshot.oldest_waiting_seconds, profile.sla_seconds
    if not snapshot.waiting or oldest is None or oldest < sla * profile.breach_threshold:
        return 0.0
    time_left = sla - oldest
    if time_left <= 0:
        return float(math.ceil(snapshot.waiting / max(job_seconds, _SHORTEST_JOB_SECONDS)))
    return snapshot.waiting / max(time_left / max(job_seconds, LEAST_JOB_SECONDS), 1.0)


def _why(
    rule: str, snapshot: PoolSnapshot, profile: Profile, rates: tuple[float, float], seconds: float
) -> str:
    now, next_rate = rates
    if rule == "drain":
        return (
            f"{snapshot.waiting} waiting, oldest {snapshot.oldest_waiting_seconds:.1f} s "
            f"of {profile.sla_seconds:g} s, {seconds:.3g} s a job"
        )
    if rule == "predictive":
        return f"{now:.3g} jobs/s expected to become {next_rate:.3g}/s, {seconds:.3g} s a job"
    return f"{now:.3g} jobs/s, {seconds:.3g} s a job"
