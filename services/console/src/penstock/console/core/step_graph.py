"""Where the steps of a workflow stand in a drawing: in columns, after all that they need. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

NODE_WIDTH, NODE_HEIGHT = 168, 46
_GAP_X, _GAP_Y = 44, 16
_MARGIN = 10
MOST_DRAWN = 120
"""Steps beyond this number are listed, not drawn."""


class Node(NamedTuple):
    """A step as a box; the position is that of its upper left corner."""

    key: str
    x: int
    y: int


class Edge(NamedTuple):
    """What one step needs of another.

    Attributes:
        path: as an SVG path.
    """

    start: str
    end: str
    path: str


class Drawing(NamedTuple):
    """All boxes and lines, in pixels."""

    width: int
    height: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def drawing(needs: Mapping[str, Sequence[str]]) -> Drawing | None:
    """The steps in columns from left to right.

    Args:
        needs: by step, in their order, the steps that must have ended before; those that are not
            among the steps, or come later, are left out.

    Returns:
        None where there is none, or so many that no reader could follow the lines.
    """
    if not 0 < len(needs) <= MOST_DRAWN:
        return None
    earlier_needs: dict[str, tuple[str, ...]] = {}
    column: dict[str, int] = {}
    for key, own in needs.items():
        earlier_needs[key] = tuple(need for need in dict.fromkeys(own) if need in column)
        column[key] = 1 + max((column[need] for need in earlier_needs[key]), default=-1)
    nodes = _placed(earlier_needs, column)
    edges = tuple(
        Edge(need, key, _line(nodes[need], nodes[key]))
        for key, own in earlier_needs.items()
        for need in own
    )
    right = max(node.x for node in nodes.values())
    bottom = max(node.y for node in nodes.values())
    return Drawing(
        width=right + NODE_WIDTH + _MARGIN,
        height=bottom + NODE_HEIGHT + _MARGIN,
        nodes=tuple(nodes.values()),
        edges=edges,
    )


def _placed(needs: Mapping[str, Sequence[str]], column: Mapping[str, int]) -> dict[str, Node]:
    """Each step on the first free row at or below that of the first step that it needs."""
    taken: dict[int, set[int]] = {}
    row: dict[str, int] = {}
    for key in needs:
        wanted = min((row[need] for need in needs[key]), default=0)
        rows = taken.setdefault(column[key], set())
        row[key] = _free(rows, wanted)
        rows.add(row[key])
    return {
        key: Node(
            key,
            _MARGIN + column[key] * (NODE_WIDTH + _GAP_X),
            _MARGIN + row[key] * (NODE_HEIGHT + _GAP_Y),
        )
        for key in needs
    }


def _free(taken: Iterable[int], wanted: int) -> int:
    used = set(taken)
    while wanted in used:
        wanted += 1
    return wanted


def _line(start: Node, end: Node) -> str:
    """A curve from the right side of one box to the left side of another."""
    x1, y1 = start.x + NODE_WIDTH, start.y + NODE_HEIGHT // 2
    x2, y2 = end.x, end.y + NODE_HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"
