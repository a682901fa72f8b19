"""Steps stand in columns, after all that they need, and never upon each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.console.core.step_graph import MOST_DRAWN, drawing


@st.composite
def steps(draw: st.DrawFn) -> dict[str, list[str]]:
    needs: dict[str, list[str]] = {}
    for number in range(draw(st.integers(1, 30))):
        needs[f"s{number}"] = draw(st.lists(st.sampled_from([*needs, "elsewhere"]), max_size=4))
    return needs


@given(steps())
def test_each_step_has_a_place_of_its_own_right_of_all_that_it_needs(
    needs: dict[str, list[str]],
) -> None:
    drawn = drawing(needs)
    assert drawn is not None
    places = {node.key: (node.x, node.y) for node in drawn.nodes}
    assert list(places) == list(needs)
    assert len(set(places.values())) == len(needs)
    assert {(edge.start, edge.end) for edge in drawn.edges} == {
        (need, key) for key, own in needs.items() for need in own if need in needs
    }
    assert all(places[edge.start][0] < places[edge.end][0] for edge in drawn.edges)
    assert all(x < drawn.width and y < drawn.height for x, y in places.values())


def test_a_step_that_names_itself_or_a_later_one_is_drawn_without_that_line() -> None:
    drawn = drawing({"a": ["b", "a"], "b": ["a"]})
    assert drawn is not None
    assert [(edge.start, edge.end) for edge in drawn.edges] == [("a", "b")]


def test_too_many_steps_are_not_drawn() -> None:
    assert drawing({f"s{number}": [] for number in range(MOST_DRAWN + 1)}) is None
    assert drawing({}) is None
