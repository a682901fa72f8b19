"""What a join of many parts costs: each of its parts is looked at once."""

from __future__ import annotations

from penstock.jobs.workflows.coded.commands import Join
from penstock.jobs.workflows.coded.running.nodes import JoinNode, Node, joined


class CountedNode(Node):
    """A part that counts how often it is asked whether it has ended."""

    looks = 0

    def __init__(self, parent: Node) -> None:
        super().__init__(parent)
        self._has_ended = False

    @property  # type: ignore[override]
    def has_ended(self) -> bool:
        CountedNode.looks += 1
        return self._has_ended

    @has_ended.setter
    def has_ended(self, value: bool) -> None:
        self._has_ended = value


def test_a_join_looks_at_each_part_once() -> None:
    join = JoinNode(Node(None), Join("gather"))
    join.parts = [CountedNode(join) for _ in range(1_000)]
    CountedNode.looks = 0
    for part in join.parts[:-1]:
        part.has_ended = True
        assert joined(join, part) is None
    join.parts[-1].has_ended = True
    assert joined(join, join.parts[-1]) == ([None] * 1_000, None)
    assert CountedNode.looks <= 3 * 1_000
