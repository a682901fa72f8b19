"""The pages of each area: in its navigation, as the tabs at their heads name them."""

from typing import NamedTuple

POOLS = (("/pools", "Pools"), ("/queues", "Queues"), ("/costs", "Forecast and cost"))
JOBS = (
    ("/jobs", "Jobs"),
    ("/stuck", "Stuck"),
    ("/silenced", "Silenced"),
    ("/tags", "Tags"),
    ("/bulk", "Bulk actions"),
    ("/views", "My views"),
)
WORKFLOWS = (
    ("/workflows", "Workflows"),
    ("/definitions", "Definitions"),
    ("/batches", "Batches"),
    ("/schedules", "Schedules"),
)
ALERTS = (
    ("/alerts", "Firing"),
    ("/alerts/history", "History"),
    ("/alerts/rules", "Rules"),
    ("/alerts/channels", "Channels"),
    ("/alerts/silences", "Silences"),
)
SYSTEM = (
    ("/system", "Health"),
    ("/events", "Events"),
    ("/metrics-catalog", "Metrics"),
    ("/records", "Records"),
    ("/audit", "Audit"),
    ("/settings", "Settings"),
    ("/accounts", "Accounts"),
    ("/account", "Me and tokens"),
    ("/api-docs", "API"),
)


class Area(NamedTuple):
    """An area of the console.

    Attributes:
        key: that goes there, after ``g``.
        name: in the navigation.
        path: of its first page.
        pages: path and name of each; empty for one without tabs.
    """

    key: str
    name: str
    path: str
    pages: tuple[tuple[str, str], ...] = ()


AREAS = (
    Area("o", "Overview", "/"),
    Area("p", "Pools", "/pools", POOLS),
    Area("d", "Decisions", "/decisions"),
    Area("j", "Jobs", "/jobs", JOBS),
    Area("f", "Failures", "/failures"),
    Area("w", "Workflows", "/workflows", WORKFLOWS),
    Area("c", "Capacity", "/capacity"),
    Area("a", "Alerts", "/alerts", ALERTS),
    Area("s", "System", "/system", SYSTEM),
)
"""In the order of the navigation."""
