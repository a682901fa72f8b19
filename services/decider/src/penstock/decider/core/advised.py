"""What a pool in advisor mode demands, before any host is asked for room. Pure.

An autoscaler outside (KEDA) has hosts of its own: what ours could carry does not bind it.
"""

from __future__ import annotations

import math
from itertools import takewhile

from penstock.decider.core.desired import PLAN_STANDS
from penstock.events.scaling import Reason, ScalingDecisionMade

_OF_HOSTS = frozenset({"capacity", "fair-share", "placement", "advice"})


def demand(made: ScalingDecisionMade) -> int | None:
    """Workers that the strategy, the bounds, the policies and an operator's hold ask for.

    Returns:
        None where the measurements were too old or missing, or the strategy failed: the plan stood,
        which in advisor mode is no number to act on.
    """
    reasons = tuple(takewhile(_is_before_hosts, made.reasons))
    if not reasons or any(reason.text.startswith(PLAN_STANDS) for reason in reasons):
        return None
    return max(reasons[-1].workers, 0)


def replicas(workers: int, workers_per_pod: int) -> int:
    """Pods that hold so many workers."""
    return math.ceil(workers / workers_per_pod)


def _is_before_hosts(reason: Reason) -> bool:
    return reason.step not in _OF_HOSTS and (reason.step, reason.rule) != ("stale", "hosts")
