"""The head of a batch of records, as aiokafka writes batches of each format."""

from __future__ import annotations

import pytest

from penstock.metrics.core.sources.record_batch import first_batch

records = pytest.importorskip("aiokafka.record.default_records")
legacy = pytest.importorskip("aiokafka.record.legacy_records")

COUNT, FIRST_MS = 11, 1_700_000_000_000


def stored(codec: int = 0, *, transactional: bool = False) -> bytearray:
    builder = records.DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=transactional, producer_id=1,
        producer_epoch=0, base_sequence=0, batch_size=100_000,
    )  # fmt: skip
    for nth in range(COUNT):
        builder.append(nth, FIRST_MS + nth * 1_000, b"key", b"value" * 100, [])
    return bytearray(builder.build())


@pytest.mark.parametrize("codec", [0, 1])
def test_offsets_and_timestamps_are_read_without_unpacking(codec) -> None:
    batch = first_batch(bytes(stored(codec)))
    assert batch is not None
    assert (batch.offset, batch.next_offset, batch.is_empty) == (0, COUNT, False)
    for nth in range(COUNT):
        assert batch.timestamp(nth) == pytest.approx(FIRST_MS / 1000 + nth)


def test_the_broker_may_have_put_its_own_time() -> None:
    data = stored()
    data[22] |= 0x08
    batch = first_batch(bytes(data))
    assert batch is not None
    assert batch.timestamp(0) == pytest.approx(FIRST_MS / 1000 + COUNT - 1)


def test_the_end_of_a_transaction_holds_no_record() -> None:
    data = stored(transactional=True)
    data[22] |= 0x20
    batch = first_batch(bytes(data))
    assert batch is not None
    assert batch.is_empty


@pytest.mark.parametrize(("version", "at"), [(0, None), (1, FIRST_MS / 1000)])
def test_old_messages_have_a_timestamp_or_none(version, at) -> None:
    builder = legacy.LegacyRecordBatchBuilder(version, compression_type=0, batch_size=1_000)
    builder.append(0, FIRST_MS, b"key", b"value")
    batch = first_batch(bytes(builder.build()))
    assert batch is not None
    assert (batch.next_offset, batch.timestamp(0)) == (1, at)


def test_what_is_no_whole_head_is_no_batch() -> None:
    data = bytes(stored())
    for size in range(61):
        assert first_batch(data[:size]) is None
    assert first_batch(data[:61]) is not None
