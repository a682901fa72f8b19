"""The bytes of a serialized KLL sketch, checked before the library reads them.

datasketches 5.2.0 believes the table of levels and reads beyond its memory by it: one changed byte
ended the process. The layout is that of the library's ``kll_sketch_impl.hpp``, little-endian; the
sketch is the one of Karnin, Lang & Liberty 2016.
"""

from __future__ import annotations

from itertools import pairwise
from math import isfinite
from struct import Struct

K = 200
"""Accuracy parameter of all sketches: rank error about 1.3 %."""
_M = 8
_FAMILY = 15
_EMPTY, _SORTED, _SINGLE = 1, 2, 4
_HEAD = Struct("<BBBBHBx")
_COUNTS = Struct("<QHBx")
_ITEM = Struct("<d")
_MOST_LEVELS = 60
"""More than 2 ** 60 samples are in no sketch."""


def layout_fault(raw: bytes, largest: float) -> str:
    """Why the bytes are no sketch that can be merged; empty for one that can be.

    Args:
        raw: a serialized sketch of doubles.
        largest: bound of the samples, of which none is below 0.
    """
    if len(raw) < _HEAD.size:
        return f"found {len(raw)} bytes"
    preamble, version, family, flags, k, m = _HEAD.unpack_from(raw)
    if (family, k, m) != (_FAMILY, K, _M):
        return f"found family {family}, k {k}, m {m}"
    match preamble, version, flags & ~_SORTED:
        case 2, 1, flag if flag == _EMPTY:
            return "" if len(raw) == _HEAD.size else f"found {len(raw)} bytes of an empty sketch"
        case 2, 2, flag if flag == _SINGLE:
            items, fault = _items(raw, _HEAD.size, 1)
            return fault or _range_fault(items, largest)
        case 5, 1, 0:
            return _levels_fault(raw, bool(flags & _SORTED), largest)
    return f"found preamble {preamble}, version {version}, flags {flags}"


def _levels_fault(raw: bytes, is_sorted: bool, largest: float) -> str:
    """As `layout_fault`, of a sketch of more than one sample.

    Args:
        is_sorted: the flags promise it of the lowest level.
    """
    if len(raw) < _HEAD.size + _COUNTS.size:
        return f"found {len(raw)} bytes"
    count, min_k, levels = _COUNTS.unpack_from(raw, _HEAD.size)
    start = _HEAD.size + _COUNTS.size
    if min_k != K or not 1 <= levels <= _MOST_LEVELS or len(raw) < start + 4 * levels:
        return f"found min_k {min_k}, {levels} levels, {len(raw)} bytes"
    capacity = sum(_capacity(levels - height - 1) for height in range(levels))
    bounds = (*Struct(f"<{levels}I").unpack_from(raw, start), capacity)
    # The highest level is made for the samples that rise to it: it is never empty.
    if bounds[-2] >= capacity or any(low > high for low, high in pairwise(bounds)):
        return f"found levels {bounds}"
    weighed = sum((high - low) << height for height, (low, high) in enumerate(pairwise(bounds)))
    if count != weighed or count < 2:
        return f"found {count} samples, in levels {weighed}"
    values, fault = _items(raw, start + 4 * levels, 2 + capacity - bounds[0])
    if fault:
        return fault
    lowest, highest, *items = values
    if fault := _range_fault(values, largest):
        return fault
    if not lowest <= min(items) <= max(items) <= highest:
        return f"found samples outside of {lowest:g} to {highest:g}"
    for height, (low, high) in enumerate(pairwise(bounds)):
        level = items[low - bounds[0] : high - bounds[0]]
        if (height or is_sorted) and level != sorted(level):
            return f"found level {height} out of order"
    return ""


def _items(raw: bytes, start: int, count: int) -> tuple[tuple[float, ...], str]:
    """So many samples that fill the bytes from ``start``, or why they are not there."""
    if len(raw) != start + count * _ITEM.size:
        return (), f"found {len(raw)} bytes, expected {start + count * _ITEM.size}"
    return Struct(f"<{count}d").unpack_from(raw, start), ""


def _range_fault(values: tuple[float, ...], largest: float) -> str:
    if all(map(isfinite, values)) and min(values) >= 0 and max(values) <= largest:
        return ""
    return f"found samples from {min(values):g} to {max(values):g}"


def _capacity(depth: int) -> int:
    """Samples for which a level so far below the highest has room: ``k * (2/3) ** depth``.

    As the library rounds it; from a depth of 30 on it halves the exponent, which comes to `_M`.
    """
    if depth > 30:
        return _M
    doubled: int = (2 * K << depth) // 3**depth
    return max(_M, (doubled + 1) >> 1)
