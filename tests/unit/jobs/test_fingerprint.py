"""Which failures count as the same one."""

from __future__ import annotations

import pytest

from penstock.events.job import JobError
from penstock.jobs.dead_letters.fingerprint import fingerprint, normalised, own_frames, what_failed
from penstock.jobs.dead_letters.raised_line import without_values

TRACEBACK = """Traceback (most recent call last):
  File "/srv/venv/lib/python3.11/site-packages/penstock/worker/running/runner.py", line 120, in _one
    job.result = encode_result(self._call(job))
  File "/srv/{release}/reports/daily.py", line {line}, in rebuild
    load(table)
    ^^^^^^^^^^^
  File "/srv/{release}/reports/load.py", line 7, in load
    return read(table)
  File "/srv/venv/lib/python3.11/site-packages/pyspark/sql/reader.py", line 300, in read
    raise AnalysisException(...)
pyspark.errors.AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] `orders_{line}` is not there
"""
CHAINED = (
    TRACEBACK
    + """
During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/srv/v1/reports/daily.py", line 20, in again
    fall_back()
ValueError: no
"""
)


def failure(release: str = "v1", line: int = 10, **fields: str) -> JobError:
    usual = {
        "kind": "pyspark.errors.AnalysisException",
        "message": f"[TABLE_OR_VIEW_NOT_FOUND] `orders_{line}` is not there",
        "traceback": TRACEBACK.replace("{release}", release).replace("{line}", str(line)),
    }
    return JobError(**{**usual, **fields})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("no row 17 in part 3", "no row 18 in part 40"),
        ("table 'orders' is gone", "table 'customers' is gone"),
        ("cannot read /lake/a=1/part-0.parquet", "cannot read /lake/b/part-9.parquet"),
        ("host 10.0.0.1:4222 refused", "host 10.0.0.77:4223 refused"),
        ("at 2026-11-20T12:00:01.5Z", "at 2026-11-21 13:00:00+01:00"),
        ("job 0193a000-0000-7000-8000-000000000000", "job 0193a000-ffff-7000-8000-000000000001"),
        ("object at 0x7f3a1c00", "object at 0x7f3a1d10"),
        ("blob 9f86d081884c7d65 is cut", "blob 2c26b46b68ffc68f is cut"),
        ("mail to a.b@example.com", "mail to c@example.org"),
        ("GET https://a.example/x?y=1 failed", "GET https://b.example/z failed"),
        ("one line\nand details 1", "one line\nand others"),
        ("customer cust_42 is gone", "customer cust_7 is gone"),
        ("no stock of SKU-19b-x", "no stock of AB2"),
    ],
)
def test_what_varies_in_a_message_makes_no_difference(first: str, second: str) -> None:
    assert normalised(first) == normalised(second)


def test_words_make_a_difference() -> None:
    assert normalised("no row 17") != normalised("no column 17")
    assert normalised("defaced") == "defaced"  # hexadecimal digits only, and a word all the same
    assert len(normalised("x" * 10_000)) == 200


def test_frames_of_libraries_and_line_numbers_do_not_count() -> None:
    assert own_frames(failure().traceback) == ("reports/daily.py:rebuild", "reports/load.py:load")
    assert own_frames(failure(line=99).traceback) == own_frames(failure().traceback)
    assert own_frames("") == ()


def test_of_chained_errors_the_one_raised_in_the_end_counts() -> None:
    assert own_frames(CHAINED) == ("reports/daily.py:again",)


def test_the_same_failure_has_the_same_fingerprint_and_another_has_not() -> None:
    same = {fingerprint(failure()), fingerprint(failure(line=4711))}
    assert len(same) == 1
    assert all(len(found) == 12 for found in same)
    for other in (
        failure(kind="builtins.ValueError"),
        failure(message="no space left"),
        failure(traceback=failure().traceback.replace("in load", "in store")),
    ):
        assert fingerprint(other) not in same


RAISED = """Traceback (most recent call last):
  File "/srv/v1/shop/reports.py", line 14, in rebuild
    {line}
    ^^^^^^^
LookupError: {message}
"""


def raised(line: str, message: str) -> JobError:
    traceback = RAISED.format(line=line, message=message)
    return JobError(kind="builtins.LookupError", message=message, traceback=traceback)


NO_ROW = 'raise LookupError(f"no row for {customer} in {self.table!r}") from None'


def test_unquoted_names_make_no_difference_where_the_raised_line_tells_them() -> None:
    bob, ann = (raised(NO_ROW, f"no row for {name} in 't'") for name in ("bob", "Ann van Dyk"))
    assert fingerprint(bob) == fingerprint(ann)
    assert what_failed(bob) == "no row for <text> in <text>"
    for other in (
        raised(NO_ROW.replace("row", "line"), "no line for bob in 't'"),
        raised("raise LookupError(", "no row for bob in 't'"),  # goes on in further lines
        failure(kind="builtins.LookupError", message="no row for bob in 't'"),
    ):
        assert fingerprint(other) != fingerprint(bob)
    in_a_library = raised(NO_ROW, "no row for bob in t").traceback.replace(
        "/srv/", "/site-packages/"
    )
    assert (
        what_failed(failure(message="no row for bob", traceback=in_a_library)) == "no row for bob"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('raise Failed(f"load: {error}") from error', "load: refused"),
        ('raise Failed(f"load: {str(error)}")', "load: refused"),
        ('raise Failed(f"load: {answer}")', "load: no space left on the device"),
        ('raise Failed(f"{name}: {answer}")', "orders: refused"),
        ('raise Failed(f"a{b}{c}")', "a bird"),
        ('raise Failed(f"load {name} now")', "what subclasses make of it"),
        ('raise Failed(f"load {name} now")', "load bob later"),
        ('raise Failed(f"load {name}", 1)', "load bob"),
        ('raise Failed(f"load {name!}")', "load bob"),
        ('check(f"load {name}")', "load bob"),
        ("raise " + "(" * 480, "load bob"),
        ("raise " + "-" * 480 + "1", "load bob"),
        ("", "load bob"),
    ],
)
def test_a_message_that_the_line_does_not_explain_is_kept(line: str, message: str) -> None:
    assert without_values(message, line) == message
