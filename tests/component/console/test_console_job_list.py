"""A list of jobs, page by page, is the jobs that match, newest first, whichever index it takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.console.logs import ARGUMENTS, logs

from penstock.console.core.job_query import JobQuery
from penstock.console.core.job_rows import JobRow
from penstock.console.core.log_entry import LogEntry
from penstock.console.core.tables import JOBS
from penstock.console.read_models import job_list, state_counts
from penstock.console.read_models.searching import walks
from penstock.console.read_models.store import Snapshot, Store
from penstock.events.job import JobDispatched
from penstock.jobs.payloads.call_digest import call_digest

_VALUES = {
    "state": ("", "dead", "completed", "waiting"),
    "queue": ("", "mail", "post"),
    "function": ("", "send"),
    "host": ("", "h1", "h2"),
    "tag": ("", "nightly", "night"),
    "batch": ("", "batch"),
    "error": ("", "late", "timeout", "early"),
    "text": ("", "SEND", "batch_0123abcd_1"),
    "args": ((), ("table=orders",), ("table=items", "table=orders"), ("day=3",)),
}
_ITEMS = {call_digest(call): items for call, items in ARGUMENTS.items()}


def matches(row: JobRow, query: JobQuery) -> bool:
    """As the filter is described."""
    error = (row.error_kind.lower(), row.error_message.lower())
    texts = (row.function.lower(), row.id.lower(), *error, *(tag.lower() for tag in row.tags))
    return (
        all(
            not (value := getattr(query, name)) or getattr(row, name) == value
            for name in ("state", "queue", "function", "host", "batch")
        )
        and set(query.args) <= set(_ITEMS.get(row.call, ()))
        and (not query.tag or query.tag in row.tags)
        and (not query.failure or (query.failure == row.fingerprint and row.state == "dead"))
        and (not query.error or any(query.error in text for text in error))
        and (not query.text or any(query.text.lower() in text for text in texts))
    )


def walked(rows: Snapshot, query: JobQuery, limit: int) -> list[str]:
    """Ids of all pages."""
    ids: list[str] = []
    after: job_list.Position | None = None
    while True:
        page = job_list.page(rows, query, limit, after)
        ids += [row.id for row in page.jobs]
        if page.next_from is None:
            return ids
        after = page.next_from


def index_all(store: Store) -> None:
    """What the console does beside its fold."""
    assert store.texts is not None
    last, has_more = store.texts.index_some()
    assert not has_more
    store.forget_marks(last)


queries = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in _VALUES.items()})


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    log=logs(
        nouns=("job",), keys=("a", "b", "c", "d", "e", "batch_0123abcd_1", "batch_0123abcd_2")
    ),
    chosen=st.lists(queries, min_size=8, max_size=8),
    limit=st.integers(1, 3),
    window=st.integers(2, 4),
    narrow=st.integers(0, 3),
    indexed=st.integers(0, 60),
)
def test_pages_together_are_all_jobs_that_match(
    tmp_path_factory: pytest.TempPathFactory,
    log: list[LogEntry],
    chosen: list[dict[str, Any]],
    limit: int,
    window: int,
    narrow: int,
    indexed: int,
) -> None:
    folder: Path = tmp_path_factory.mktemp("console")
    store = Store(folder, arguments=("table",))
    middle = indexed % len(log)
    for part in (log[:middle], log[middle:]):
        if part:
            index_all(store)
            store.apply(part)
    with pytest.MonkeyPatch.context() as patch, store.reading() as rows:
        patch.setattr(job_list, "_WINDOW", window)
        patch.setattr(walks, "NARROW", narrow)
        newest = rows.rows(JOBS, "ORDER BY dispatched_us DESC, id DESC")
        fingerprints = {row.fingerprint for row in newest if row.fingerprint}
        by_failure = [JobQuery(failure=one, state=s) for one in fingerprints for s in ("", "dead")]
        single = [JobQuery(**{name: v[1]}) for name, v in _VALUES.items()]
        for query in (*(JobQuery(**fields) for fields in chosen), *single, *by_failure):
            expected = [row.id for row in newest if matches(row, query)]
            assert walked(rows, query, limit) == expected, query
            any_state = msgspec.structs.replace(query, state="")
            states = Counter(row.state.value for row in newest if matches(row, any_state))
            counts = state_counts.state_counts(rows, query)
            known = {state: number for state, number in counts.items() if number is not None}
            assert known == {state: states[state] for state in known}, query
            if set(msgspec.to_builtins(query)) <= {"state", "queue", "function"}:
                assert len(known) == len(counts), query
    store.close()


def test_counts_of_states_stop_at_a_bound_and_after_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    jobs = [
        JobDispatched(job_id=f"j{number}", queue="q", function="f", payload=b"")
        for number in range(4)
    ]
    store.apply([LogEntry(place, "job", event.key, event) for place, event in enumerate(jobs, 1)])
    of_function = JobQuery(function="f")
    with store.reading() as rows:
        monkeypatch.setattr(state_counts, "COUNTED_MOST", 2)
        assert state_counts.state_counts(rows, of_function)["waiting"] == 3
        monkeypatch.setattr(state_counts, "COUNT_SECONDS", -1.0)
        assert set(state_counts.state_counts(rows, of_function).values()) == {None}
        monkeypatch.setattr(walks, "NARROW", 3)
        assert set(state_counts.state_counts(rows, JobQuery(host="h")).values()) == {None}
    store.close()
