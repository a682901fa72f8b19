"""A small line stays within its box, and is left out where there is nothing to draw."""

from __future__ import annotations

import re

from penstock.console.core.sparkline import HEIGHT, WIDTH, path


def test_the_largest_value_is_at_the_top_and_unknown_ones_are_left_out() -> None:
    line = path([100, 110, 120], [0, None, 40], 100, 120)
    numbers = [float(number) for number in re.findall(r"[\d.]+", line)]
    assert numbers == [0, HEIGHT, WIDTH, 1]


def test_one_measurement_is_no_line() -> None:
    assert path([100], [3], 0, 200) == ""
    assert path([100, 110], [None, 3], 0, 200) == ""
    assert path([], [], 0, 0) == ""
