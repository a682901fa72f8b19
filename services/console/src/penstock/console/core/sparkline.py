"""A small line without axes, as an SVG path of 100 by 20. Pure."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT = 100, 20


def path(at: Sequence[int], values: Sequence[float | None], since: float, until: float) -> str:
    """The line; empty with fewer than two points.

    Args:
        at: seconds, ascending.
        values: as many, never negative; None where nothing was measured.
        since: second at the left edge.
        until: second at the right edge.
    """
    points = [
        (second, value) for second, value in zip(at, values, strict=True) if value is not None
    ]
    if len(points) < 2 or until <= since:
        return ""
    largest = max(*(value for _, value in points), 1.0)
    width, height = WIDTH / (until - since), (HEIGHT - 1) / largest
    return "M" + "L".join(
        f"{width * (second - since):.1f} {HEIGHT - height * value:.1f}" for second, value in points
    )
