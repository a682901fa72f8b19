"""The tally of a batch: memory and snapshots in proportion to the jobs that were counted."""

from __future__ import annotations

import sys
import time
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.jobs.batches.slots import Slots
from penstock.jobs.derived_ids import MAX_JOBS, Member
from penstock.orchestrator.core.tally import PackedTally, Slot, Tally

PLACES = st.dictionaries(
    st.tuples(st.sampled_from(["00000000", "0123abcd"]), st.integers(0, MAX_JOBS - 1)),
    st.sampled_from(list(Slot)[1:]),
    max_size=30,
)


@given(PLACES)
def test_a_packed_tally_comes_back_as_it_was(places: dict[tuple[str, int], Slot]) -> None:
    tally = Tally()
    for (lane, number), slot in places.items():
        tally.put(Member("b", lane, number), slot)
    packed = tally.pack()
    again, slots = Tally(packed), Slots("b", packed.lanes)
    assert again.counts == tally.counts
    assert set(again.pending("b")) == {
        Member("b", *place) for place, slot in places.items() if slot is Slot.PENDING
    }
    for place, slot in places.items():
        member = Member("b", *place)
        assert again.slot(member) is slot
        assert slots.has_ended(member) is (slot > Slot.PENDING)


def test_a_tally_of_an_earlier_version_is_read() -> None:
    """One row a lane, from its first job on."""
    tally = Tally(PackedTally({"0123abcd": zlib.compress(bytes([1] * 700 + [0, 2]))}))
    assert (tally.counts.pending, tally.counts.completed) == (700, 1)
    assert tally.slot(Member("b", "0123abcd", 701)) is Slot.COMPLETED
    assert list(tally.pack().lanes) == ["0123abcd"]


def test_high_numbers_of_many_lanes_cost_no_more_than_low_ones() -> None:
    """A forged event names the last job of a lane of its own: a megabyte each, before."""
    tracemalloc.start()
    tally, began = Tally(), time.process_time()
    for lane in range(500):
        tally.put(Member("b", f"{lane:08x}", MAX_JOBS - 1), Slot.CANCELLED)
    packed = tally.pack()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert tally.counts.cancelled == 500
    assert most < 2_000_000, f"{most} bytes for 500 jobs"
    assert sum(map(len, packed.lanes.values())) < 50_000
    assert time.process_time() - began < 5


def test_a_full_lane_takes_little_more_than_a_byte_a_job() -> None:
    tally = Tally(PackedTally({"0123abcd": zlib.compress(bytes([1]) * MAX_JOBS)}))
    assert tally.counts.pending == MAX_JOBS
    pages = tally._slots._pages["0123abcd"]
    assert sum(map(sys.getsizeof, pages.values())) < 1.5 * MAX_JOBS


@pytest.mark.parametrize(
    "lanes",
    [
        {"a": zlib.compress(bytes([1]) * (MAX_JOBS + 1))},
        {f"{lane:08x}": zlib.compress(bytes([1]) * MAX_JOBS) for lane in range(17)},
        {"a": b"rubbish"},
        {"a": zlib.compress(b"1" * 100)[:-8]},
        {"a+1": zlib.compress(b"\1")},
        {"a+-256": zlib.compress(b"\1")},
        {"a+" + "9" * 5000: zlib.compress(b"\1")},
    ],
    ids=["a lane too long", "all too long", "rubbish", "cut off", "odd", "negative", "far"],
)
def test_rows_that_no_tally_packed_are_refused(lanes: dict[str, bytes]) -> None:
    """A kilobyte of a forged event would unpack to a megabyte, or to gigabytes."""
    with pytest.raises(ValueError, match=r"found|decompress"):
        Tally(PackedTally(lanes))
