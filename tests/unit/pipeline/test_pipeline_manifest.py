"""What belongs to a lake, whatever a crash left beside it."""

from __future__ import annotations

import msgspec

from penstock.pipeline.core.manifest import Entry, File, Whole, batch_name, fold, small_files

NOTHING = Whole(batch="whole")


def entry(number: int, query: str = "abcdef0123", **fields: int) -> Entry:
    name = batch_name(query, number)
    path = f"set=known/day=2026-01-01/event=JobStarted/batch={name}/a.parquet"
    return Entry(batch=name, files=(File(path=path, bytes=10),), **fields)


def test_entries_add_up() -> None:
    found = fold(
        NOTHING,
        [entry(1, first=11, last=20, rows=10, unknown=1), entry(0, first=1, last=10, rows=9)],
    )
    assert (found.first, found.last, found.rows, found.unknown, len(found.files)) == (
        1,
        20,
        19,
        1,
        2,
    )


def test_an_empty_batch_leaves_the_ends_alone() -> None:
    found = fold(fold(NOTHING, [entry(0, first=5, last=9)]), [entry(1)])
    assert (found.first, found.last) == (5, 9)


def test_an_entry_that_compaction_took_counts_once_though_it_is_still_there() -> None:
    once = fold(NOTHING, [entry(0, rows=3)])
    assert once.holds(entry(0).batch)
    assert fold(once, [entry(0, rows=3)]) == once


def test_a_batch_of_another_checkpoint_is_another_batch() -> None:
    once = fold(NOTHING, [entry(7, rows=3)])
    assert not once.holds(batch_name("0123456789", 0))
    assert fold(once, [entry(0, "0123456789", rows=2)]).rows == 5


def test_only_partitions_with_enough_small_files_are_merged() -> None:
    def file(day: int, name: str, size: int = 1) -> File:
        return File(path=f"set=known/day={day}/event=A/batch={name}/a.parquet", bytes=size)

    files = [file(1, "a"), file(1, "b"), file(1, "big", 100), file(2, "a")]
    assert small_files(files, 100, 2) == [("set=known/day=1/event=A", files[:2])]
    assert small_files(files, 100, 1) == [("set=known/day=1/event=A", files[:2])]


def test_a_manifest_survives_its_file() -> None:
    whole = fold(NOTHING, [entry(0, rows=3)])
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Whole) == whole
