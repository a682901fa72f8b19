"""A log made by the recorder, recomputed: equal, tampered, torn, in parts, under other settings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from tests.unit.decider.given import NOW
from tests.unit.decider.recorded import POOLS, Log, eventful

from penstock.bus.saved_log import BadLog
from penstock.config import ConfigError
from penstock.decider.core.policies.shipped import SHIPPED
from penstock.decider.core.registry import BUILTIN
from penstock.decider.publishing import adopting, recorder
from penstock.decider.replay import stretches, whatif
from penstock.decider.replay.chain import Installed
from penstock.decider.replay.explain import explain
from penstock.decider.replay.recompute import recorded_settings
from penstock.decider.replay.verdict import MOST_SHOWN, Verdict, add
from penstock.events.record import RECORDS, CheckpointTaken

INSTALLED = Installed(BUILTIN, SHIPPED)


@pytest.fixture
def log() -> Log:
    return eventful()


def verdict(log: Log, tmp_path: Path) -> Verdict:
    return stretches.verify(log.write(tmp_path / "log"))


def test_all_of_it_is_equal(log: Log, tmp_path: Path):
    found = verdict(log, tmp_path)
    assert found.is_equal
    assert (found.rounds, found.states) == (70, 2)
    assert found.decisions == found.published == 80
    assert found.begins_at == datetime.fromtimestamp(NOW + 0.05, UTC)


def test_stretches_cover_it_whatever_their_number(log: Log, tmp_path: Path, monkeypatch):
    path = log.write(tmp_path / "log")
    whole = stretches.verify(path)
    monkeypatch.setattr(stretches, "_LEAST_BYTES", 1)
    size = path.stat().st_size
    for processes in (1, 2, 5):
        spans = stretches._spans(size, processes)
        parts = [stretches._stretch(path, span, None) for span in spans]
        assert stretches.add(parts) == whole, spans


def test_a_round_that_was_changed_is_found_where_it_was_not_told(log: Log, tmp_path: Path):
    log.entries = [each for each in log.entries if ".ScalingDecisionMade" not in each.subject]
    number = next(
        number
        for number, each in enumerate(log.entries)
        if each.subject.endswith("RoundDecided") and b'"number":20,' in bytes(each.body)
    )
    body = bytes(log.entries[number].body)
    changed = body.replace(b'"due":["emails"]', b'"due":["cron"]')
    assert changed != body
    log.entries[number] = msgspec.structs.replace(log.entries[number], body=msgspec.Raw(changed))
    found = verdict(log, tmp_path)
    assert not found.is_equal
    assert (found.differences[0].round, found.equal_rounds) == (20, 69)


def test_what_another_program_decided_is_said(log: Log, tmp_path: Path):
    old = [
        msgspec.structs.replace(each, body=msgspec.Raw(_reprogrammed(bytes(each.body))))
        if ".round." in each.subject
        else each
        for each in log.entries
    ]
    log.entries = old
    found = verdict(log, tmp_path)
    assert found.programs == ["0.0.9+old"]
    assert (found.other_program, found.is_equal) == (70, False)


def _reprogrammed(body: bytes) -> bytes:
    record = msgspec.json.decode(body)
    record["program"] = "0.0.9+old"
    if "digest" in record:
        record["digest"] = "0" * 16
    return msgspec.json.encode(record)


def test_a_record_that_was_lost_is_a_gap_that_the_next_round_ends(tmp_path: Path):
    log = Log()
    for second in range(10):
        log.round(second, 5.0, lost=99 if second == 4 else 0)
    found = verdict(log, tmp_path)
    assert found.orphans == 2  # told, but of a round that nobody knows
    assert (found.rounds, found.equal_rounds, found.gaps) == (9, 9, 0)
    assert not found.is_equal


def test_large_checkpoints_come_in_parts(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(recorder, "POOLS_A_PART", 1)
    monkeypatch.setattr(adopting, "POOLS_A_PART", 1)
    monkeypatch.setattr(recorder, "CHECKPOINT_SECONDS", 2.0)
    log = Log()
    for second in range(9):
        log.round(second, 5.0)
    assert any(b'"part":2,"parts":2' in bytes(each.body) for each in log.entries)
    assert verdict(log, tmp_path).is_equal


def sliced(monkeypatch: pytest.MonkeyPatch) -> Log:
    """Rounds over one of two pools in turns: each stores half of a checkpoint that is due."""
    monkeypatch.setattr(recorder, "POOLS_A_PART", 1)
    monkeypatch.setattr(recorder, "_PARTS_A_SLICE", 1)
    monkeypatch.setattr(recorder, "CHECKPOINT_SECONDS", 8.0)
    log = Log()
    for second in range(40):
        log.round(second, 5.0 + second, due={("emails", "cron")[second % 2]} if second else None)
    return log


def records_of(log: Log) -> list[str]:
    """Rounds, and parts of checkpoints, in their order."""
    return [
        f"part {record.part}" if isinstance(record, CheckpointTaken) else "round"
        for each in log.entries
        if ".round." in each.subject and (record := RECORDS.decode(bytes(each.body)))
    ]


def part_of(log: Log, number: int, part: int) -> int:
    """The place of a checkpoint's part in the log."""
    return next(
        place
        for place, each in enumerate(log.entries)
        if each.subject.endswith(CheckpointTaken.__name__)
        and isinstance(record := RECORDS.decode(bytes(each.body)), CheckpointTaken)
        and (record.number, record.part) == (number, part)
    )


def test_a_checkpoint_whose_parts_come_with_several_rounds_is_one_of_the_first(
    tmp_path: Path, monkeypatch
):
    log = sliced(monkeypatch)
    kept = records_of(log)
    assert kept[:3] == ["part 1", "part 2", "round"]  # the first: nothing could be recomputed else
    assert kept[10:14] == ["part 1", "round", "part 2", "round"]
    found = verdict(log, tmp_path)
    assert found.is_equal
    assert (found.rounds, found.states, found.equal_states, found.gaps) == (40, 4, 4, 0)
    monkeypatch.setattr(stretches, "_LEAST_BYTES", 1)
    path = log.write(tmp_path / "log")
    spans = stretches._spans(path.stat().st_size, 5)
    assert stretches.add([stretches._stretch(path, span, None) for span in spans]) == found


def test_a_log_that_begins_with_such_a_checkpoint_is_recomputed_from_it(
    tmp_path: Path, monkeypatch
):
    log = sliced(monkeypatch)
    settings = [each for each in log.entries if ".settings." in each.subject]
    log.entries = settings + log.entries[part_of(log, 9, 1) :]
    found = verdict(log, tmp_path)
    assert found.is_equal
    # 10 to 40: that of the checkpoint itself comes before its last part
    assert (found.rounds, found.states, found.gaps) == (31, 3, 0)


def test_a_state_that_was_changed_in_such_a_checkpoint_is_found(tmp_path: Path, monkeypatch):
    log = sliced(monkeypatch)
    number = part_of(log, 9, 2)
    entry = log.entries[number]
    record = msgspec.json.decode(bytes(entry.body))
    for kept in record["pools"].values():
        kept.setdefault("state", {})["up_at"] = 1.0
    body = msgspec.Raw(msgspec.json.encode(record))
    log.entries[number] = msgspec.structs.replace(entry, body=body)
    found = verdict(log, tmp_path)
    assert not found.is_equal
    what = "state.pools.cron.up_at: recorded 1.0, recomputed nothing"
    assert found.differences[0].what == (what,)


def test_a_decision_in_other_bytes_is_different_for_replay_and_for_explain(
    log: Log, tmp_path: Path
):
    number, entry = next(
        (number, each)
        for number, each in enumerate(log.entries)
        if each.subject.endswith("ScalingDecisionMade")
    )
    raw = bytes(entry.body).replace(b'"sla_seconds":30.0', b'"sla_seconds":30')
    assert raw != bytes(entry.body)
    before = explain(bytes(entry.body), log.entries, INSTALLED)
    log.entries[number] = msgspec.structs.replace(entry, body=msgspec.Raw(raw))
    replayed = verdict(log, tmp_path).differences[0].what
    after = explain(raw, log.entries, INSTALLED)
    assert before.recomputed == "equal"
    assert after.recomputed == "different"
    assert after.why == replayed == ("sla_seconds: recorded 30, recomputed 30.0",)


def test_a_state_that_does_not_follow_is_found(log: Log, tmp_path: Path):
    number = [
        number
        for number, each in enumerate(log.entries)
        if each.subject.endswith("CheckpointTaken")
    ][1]
    was = bytes(log.entries[number].body)
    body = was.replace(b'"placement":{"a":10}', b'"placement":{"a":9}')
    assert body != was
    log.entries[number] = msgspec.structs.replace(log.entries[number], body=msgspec.Raw(body))
    found = verdict(log, tmp_path)
    assert found.equal_states == found.states - 1
    assert "state.pools.emails.placement.a: recorded 9, recomputed 10" in found.differences[0].what


def test_a_file_that_is_no_log_is_refused(tmp_path: Path):
    path = tmp_path / "log"
    path.write_text("time,value\n1,2\n")
    with pytest.raises(BadLog, match="at byte 0: found b'time,value"):
        stretches.verify(path)


def test_nothing_is_not_equal(tmp_path: Path):
    (tmp_path / "log").write_bytes(b"")
    assert not stretches.verify(tmp_path / "log").is_equal


# --- other settings -------------
def compared(log: Log, **assignments: object) -> Iterator[whatif.Comparison]:
    other = whatif.change({name.replace("__", "."): each for name, each in assignments.items()})
    known = stretches.recorded_settings(log.entries)
    return iter(whatif.compare(log.entries, known, INSTALLED, other))


def test_other_settings_are_laid_beside(log: Log):
    cron, emails = compared(log, pools__emails__max_workers=7)
    assert (cron.unlike, cron.recorded_worker_seconds) == (0, cron.other_worker_seconds)
    assert emails.unlike == emails.rounds == 70
    assert {aside.other for aside in emails.asides} == {7}
    assert emails.other_worker_seconds == pytest.approx(7 * 69, rel=0.02)
    assert emails.recorded_worker_seconds > emails.other_worker_seconds


def test_a_pool_that_is_not_in_the_log_is_refused(log: Log):
    with pytest.raises(ConfigError, match=r"pools.nope: no pool of this name.*cron, emails"):
        compared(log, pools__nope__max_workers=1)


def test_a_pool_that_settings_of_later_on_lack_is_compared_as_long_as_it_was_there():
    log = Log()
    for second in range(5):
        log.round(second, 5.0)
    log.begin_term({"emails": POOLS["emails"]})
    for second in range(5, 10):
        log.round(second, 5.0)
    cron, emails = compared(log, pools__emails__max_workers=7)
    assert (cron.rounds, emails.rounds) == (5, 10)


def test_a_pattern_reaches_all_pools(log: Log):
    cron, emails = compared(log, **{"pools__*__min_workers": 30})
    assert cron.unlike == 10
    assert emails.unlike == 70


def test_the_option_of_a_strategy_may_be_named_by_its_path() -> None:
    dotted = whatif.change({"pools.emails.options.deadline.calm": 2})
    assert dotted == whatif.change({"pools.emails.options": {"deadline": {"calm": 2}}})
    assert dotted.pools["emails"].options == {"deadline": {"calm": 2}}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("pools.emails.calm", 3, "did you mean options.deadline.calm"),
        ("pools.emails.slaseconds", 3, "slaseconds"),
        ("pools.emails.sla_seconds", "soon", "sla_seconds"),
        ("decider.stale_second", 3, "did you mean decider.stale_seconds"),
        ("emails", 3, "changes no decision"),
        ("decider.placement", "scatter", "placement"),
    ],
)
def test_what_cannot_be_set_is_refused(name: str, value: object, text: str):
    with pytest.raises(ConfigError, match=text):
        whatif.change({name: value})


def test_a_line_without_end_and_a_subject_of_few_parts_are_refused(tmp_path, monkeypatch) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'[1,1.0,"penstock.snapshots",null]\n')
    with pytest.raises(BadLog, match=r"found the subject .*, expected 4 parts"):
        stretches.verify(path)
    monkeypatch.setattr("penstock.bus.saved_log.MOST_LINE_BYTES", 1000)
    path.write_bytes(b"\0" * 5000)
    with pytest.raises(BadLog, match="found a line of 1,000 bytes or more"):
        stretches.verify(path)


def test_what_a_verdict_lists_is_bounded() -> None:
    listed = [str(number) for number in range(1000)]
    total = add([Verdict(unreadable=listed, programs=listed)] * 2)
    assert (len(total.unreadable), len(total.programs)) == (MOST_SHOWN,) * 2
    assert not total.is_equal


def test_settings_of_a_pool_under_another_name_are_refused(log: Log) -> None:
    entries = [entry for entry in log.entries if ".snapshots.settings." in entry.subject]
    renamed = [
        msgspec.structs.replace(
            entry,
            body=msgspec.Raw(bytes(entry.body).replace(b'"name":"emails"', b'"name":"other"')),
        )
        for entry in entries
    ]
    assert renamed != entries
    with pytest.raises(BadLog, match="found settings of pool 'other' under the name 'emails'"):
        recorded_settings(renamed)
