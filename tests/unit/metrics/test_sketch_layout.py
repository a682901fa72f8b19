"""No bytes of a sketch end the process that merges them."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from contextlib import suppress

import pytest
from datasketches import kll_doubles_sketch
from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.core.sketch_layout import K, layout_fault
from penstock.metrics.core.sketches import BadSketch, Distribution, serialized

COUNTS = (1, 2, 200, 201, 608, 1000, 5000)
CHANGED = """
import random
from math import inf
from penstock.metrics.core.sketches import BadSketch, Distribution, serialized

refused = merged = 0
for count in (1, 2, 40, 201, 608, 1000, 5000):
    numbers = random.Random(count)
    raw = serialized(numbers.random() for _ in range(count))
    places = {*range(min(len(raw), 96)), *numbers.sample(range(len(raw)), min(len(raw), 200))}
    for place in sorted(places):
        for value in {0, 1, 2, 4, 5, 127, 128, 255, raw[place] ^ 1, *numbers.sample(range(256), 4)}:
            changed = raw[:place] + bytes([value]) + raw[place + 1 :]
            distribution = Distribution(60.0, keeps=100)
            distribution.add(1.0, 0.0)
            try:
                distribution.merge(changed, 0.0, 0.0, 0.0)
                merged += 1
            except BadSketch:
                refused += 1
            assert distribution.quantiles(0.0).p99_seconds >= 0
print(refused, merged)
"""


def samples(count: int) -> list[float]:
    numbers = random.Random(count)
    return [numbers.expovariate(1.0) for _ in range(count)]


@pytest.mark.parametrize("count", (*COUNTS, 300_000))
def test_sketches_of_any_size_are_taken(count: int) -> None:
    assert layout_fault(serialized(samples(count)), 1e6) == ""


def test_sketches_that_were_merged_or_read_are_taken() -> None:
    merged = kll_doubles_sketch(K)
    for count in COUNTS:
        part = kll_doubles_sketch.deserialize(serialized(samples(count)))
        merged.merge(part)
        merged.get_quantile(0.5)  # sorts the lowest level
        assert layout_fault(bytes(merged.serialize()), 1e6) == ""
    assert layout_fault(bytes(kll_doubles_sketch(K).serialize()), 1e6) == ""


def test_no_changed_byte_ends_the_process() -> None:
    command = [sys.executable, "-c", CHANGED]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    refused, merged = map(int, ended.stdout.split())
    assert refused > 1000, "the table of levels and the counts are checked"
    assert merged > 1000, "samples may have any value"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e12])
@pytest.mark.parametrize("count", [1, 2, 1000])
def test_samples_that_are_no_durations_are_refused(count: int, value: float) -> None:
    raw = bytearray(serialized(samples(count)))
    raw[-8:] = struct.pack("<d", value)
    with pytest.raises(BadSketch, match="found"):
        Distribution(60.0).merge(bytes(raw), 0.0, 0.0, 0.0)


@given(st.sampled_from(COUNTS), st.lists(st.tuples(st.integers(0, 80), st.binary(max_size=9))))
def test_overwritten_sketches_are_refused_or_merged(
    count: int, changes: list[tuple[int, bytes]]
) -> None:
    raw = serialized(samples(count))
    for place, new in changes:
        raw = raw[:place] + new + raw[place + len(new) :]
    distribution = Distribution(60.0)
    distribution.add(1.0, 0.0)
    with suppress(BadSketch):
        distribution.merge(raw, 0.0, 0.0, 0.0)
    quantiles = distribution.quantiles(0.0)
    assert quantiles is not None
    assert quantiles.count >= 1
