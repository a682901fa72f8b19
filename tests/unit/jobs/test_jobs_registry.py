"""Marking functions as jobs, and what their arguments may be."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.subjects import BadName
from penstock.jobs import BadArguments, Context, UnknownJob, job, registry
from penstock.jobs.errors import WrongResult
from penstock.jobs.job_type import JobType, encode_result
from penstock.jobs.registry import find


@dataclass
class Attachment:
    number: int
    file: Path


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Window(msgspec.Struct, frozen=True):
    start: date
    days: int = 7

    def __post_init__(self) -> None:
        if self.days < 1:
            raise ValueError("a window has at least one day")


@pytest.fixture(autouse=True)
def registry_as_it_was() -> Iterator[None]:
    before = dict(registry.REGISTRY)
    yield
    registry.REGISTRY.clear()
    registry.REGISTRY.update(before)


@job(queue="reports", tries=5, tags=["sales", "sales"])
def rebuild(context: Context, table: str, day: date, limit: int | None = None) -> int:
    return len(table)


@job
def mixed(
    when: datetime, amount: Decimal, key: UUID, colour: Colour, window: Window,
    names: list[str], parts: dict[str, float], pause: timedelta, raw: bytes = b"",
) -> None: ...  # fmt: skip


def test_a_marked_function() -> None:
    assert (rebuild.queue, rebuild.tries, rebuild.tags) == ("reports", 5, ("sales",))
    assert rebuild.name == f"{__name__}.rebuild"
    assert rebuild.takes_context
    assert not mixed.takes_context
    assert find(rebuild.name) is rebuild
    assert rebuild.function(None, table="abc", day=date(2026, 1, 1)) == 3


MODULE = """
from penstock.jobs import job

@job(queue="reports")
def send(to: str) -> None: ...
"""


def test_two_jobs_of_one_name_in_a_module_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "twice_named_jobs.py").write_text(MODULE + MODULE)
    with pytest.raises(ValueError, match=r"'twice_named_jobs\.send': line 4 and line 9; rename"):
        importlib.import_module("twice_named_jobs")


def test_a_module_that_is_loaded_anew_defines_its_jobs_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "reloaded_jobs.py").write_text(MODULE)
    module = importlib.import_module("reloaded_jobs")
    before = module.send
    importlib.reload(module)
    assert find("reloaded_jobs.send") is module.send is not before


def test_a_call_is_made_by_name_and_by_place() -> None:
    day = date(2026, 11, 20)
    by_name = rebuild(table="orders", day=day)
    by_place = rebuild("orders", day)
    assert by_name.arguments == by_place.arguments
    assert rebuild.decode(by_name.arguments) == {"table": "orders", "day": day, "limit": None}
    assert repr(by_name) == f"<call of {rebuild.name}>"


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((), {"table": "orders"}, "argument 'day' is missing"),
        (("orders", date(2026, 1, 1), 1, 2), {}, "takes 3 arguments, found 4"),
        (("orders",), {"table": "x", "day": date(2026, 1, 1)}, "'table' is given twice"),
        (
            ("orders",),
            {"day": date(2026, 1, 1), "dya": 1},
            "there is no argument 'dya'; did you mean 'day'?",
        ),
        (("orders",), {"day": 3}, "Expected `date`, got `int` - at `$.day`"),
        ((4,), {"day": date(2026, 1, 1)}, "Expected `str`, got `int` - at `$.table`"),
        (("orders",), {"day": date(2026, 1, 1), "limit": "7"}, "got `str` - at `$.limit`"),
        (("\ud800",), {"day": date(2026, 1, 1)}, "surrogates not allowed"),
    ],
)
def test_what_does_not_fit_is_refused_when_called(args: Any, kwargs: Any, why: str) -> None:
    with pytest.raises(BadArguments, match="rebuild") as refused:
        rebuild(*args, **kwargs)
    assert why in str(refused.value)


def test_what_cannot_travel_is_refused_when_called() -> None:
    @job
    def anything(value: Any) -> None: ...

    deep: list[Any] = []
    for _ in range(20_000):
        deep = [deep]
    for value in (object(), {"a": object()}, deep, float):
        with pytest.raises(BadArguments):
            anything(value=value)


def test_an_author_s_own_check_is_a_refusal_too() -> None:
    @job
    def over(window: Window) -> None: ...

    with pytest.raises(BadArguments, match="at least one day"):
        over.decode(msgspec.msgpack.encode({"window": {"start": "2026-01-01", "days": 0}}))


@pytest.mark.parametrize(
    "arguments",
    [
        b"",
        b"\xc1",
        b"\x90",
        msgspec.msgpack.encode([1]),
        msgspec.msgpack.encode({"table": 1, "day": "2026-01-01"}),
        msgspec.msgpack.encode({"table": "x", "day": "20260101"}),
        msgspec.msgpack.encode({"table": "x", "day": "2026-01-01", "more": 1}),
        b"\x81\xa5table\xa2\xff\xfe",
        b"\x81\xa5table" + b"\x91" * 200_000,
    ],
)
def test_arguments_off_the_wire_are_checked_again(arguments: bytes) -> None:
    with pytest.raises(BadArguments):
        rebuild.decode(arguments)


@given(
    when=st.datetimes(),
    amount=st.decimals(allow_nan=False, allow_infinity=False),
    key=st.uuids(),
    colour=st.sampled_from(Colour),
    window=st.builds(Window, start=st.dates(), days=st.integers(1, 1000)),
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3),
    parts=st.dictionaries(st.sampled_from("abc"), st.floats(allow_nan=False), max_size=3),
    pause=st.timedeltas(timedelta(-999), timedelta(999)),
    raw=st.binary(max_size=9),
)
def test_typed_arguments_come_back_as_they_went(**arguments: Any) -> None:
    assert mixed.decode(mixed(**arguments).arguments) == arguments


def test_defaults_are_each_call_s_own() -> None:
    @job
    def gather(names: list[str] = [], limit: int = 3) -> None: ...  # noqa: B006

    first = gather.decode(gather().arguments)
    first["names"].append("x")
    assert gather.decode(gather().arguments) == {"names": [], "limit": 3}


def test_an_argument_that_no_call_can_carry_is_refused_when_marked() -> None:
    with pytest.raises(TypeError, match="'path' is a Path, which no call can carry; declare str"):

        @job
        def load(path: Path) -> None: ...

    with pytest.raises(TypeError, match="'path' is a Path, which no call can carry"):

        @job
        def load_usual(path: Path = Path("usual")) -> None: ...

    with pytest.raises(TypeError, match="'files' is a Path, which no call"):

        @job
        def load_all(files: list[Attachment]) -> None: ...

    with pytest.raises(TypeError, match=r"'notify' is a Callable, .* use None, bool, int"):

        @job
        def call_back(notify: Callable[[], None]) -> None: ...


def test_an_argument_that_need_not_be_sent_may_have_any_type() -> None:
    @job(name="sendable-test.measure")
    def measure(value: object, clock: Callable[[], float] | None = None) -> None: ...

    assert measure(value=3).arguments
    del registry.REGISTRY[measure.name]


def test_what_cannot_be_called_by_name_is_refused_when_marked() -> None:
    with pytest.raises(TypeError, match=r"\*rest cannot be typed"):

        @job
        def many(*rest: int) -> None: ...

    with pytest.raises(TypeError, match=r"\*more cannot be typed"):

        @job
        def named(**more: int) -> None: ...

    with pytest.raises(TypeError, match="positional-only"):

        @job
        def placed(x: int, /) -> None: ...


@pytest.mark.parametrize(
    ("settings_", "error"),
    [
        ({"queue": "a.b"}, BadName),
        ({"queue": ""}, BadName),
        ({"tries": -1}, ValueError),
        ({"timeout_seconds": -0.5}, ValueError),
        ({"tags": ["x" * 101]}, ValueError),
        ({"tags": [""]}, ValueError),
        ({"tags": [str(n) for n in range(11)]}, ValueError),
    ],
)
def test_settings_out_of_bounds(settings_: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        job(**settings_)(lambda: None)


def test_an_unknown_job_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownJob, match=f"did you mean '{rebuild.name}'"):
        find(f"{__name__}.rebuildd")
    with pytest.raises(UnknownJob, match=r"did you mean|jobs\.modules"):
        find("os.system")
    with pytest.raises(UnknownJob):
        find("x" * 10_000)


def test_results_are_typed() -> None:
    @job
    def last_day() -> date:
        return date(2026, 11, 20)

    result = encode_result(last_day.function())
    assert last_day.decode_result(result) == date(2026, 11, 20)


def test_plain_and_async_functions() -> None:
    @job(name="soon")
    async def soon() -> int:
        return 1

    assert isinstance(soon, JobType)
    assert soon.is_async
    assert not rebuild.is_async
    assert find("soon") is soon


class Sum(msgspec.Struct):
    total: Decimal


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (float, 3),
        (tuple[int, str], (1, "a")),
        (set[int], {1}),
        (Sum, Sum(Decimal("1.5"))),
        (None, None),
    ],
)
def test_what_the_encoding_makes_the_declared_type_is_no_wrong_result(
    declared: Any, value: Any
) -> None:
    def work() -> Any: ...

    work.__annotations__["return"] = declared
    kind = job(name="tests.work")(work)
    assert kind.decode_result(kind.encode_result(value)) == value


def test_a_wrong_result_of_a_job_with_secrets_is_not_quoted() -> None:
    @job(name="tests.secret", encrypted=True)
    def secret() -> Literal["a", "b"]: ...

    @job(name="tests.open")
    def open_() -> Literal["a", "b"]: ...

    with pytest.raises(WrongResult, match="'password'"):
        open_.encode_result("password")
    with pytest.raises(WrongResult) as refused:
        secret.encode_result("password")
    assert "password" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"timeout_seconds": "5m"}, "timeout_seconds: found '5m', expected seconds, such as 300"),
        ({"tries": 2.5}, "tries: found 2.5, expected a whole number"),
        ({"max_lost": "3"}, "max_lost: found '3', expected a whole number"),
        ({"tries": -1}, "tries: found -1, expected 0 or more"),
    ],
)
def test_numbers_of_a_job_that_are_none_are_refused_with_what_is_expected(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        job(**settings)(lambda: None)


def test_a_context_that_is_not_first_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match=r"the context is parameter 2, expected the first"):

        @job
        def late(table: str, context: Context) -> None: ...


def test_a_refusal_names_the_arguments_and_not_the_context() -> None:
    with pytest.raises(BadArguments) as refused:
        rebuild("orders")
    assert str(refused.value).endswith(
        "rebuild(table: str, day: date, limit: int | None): argument 'day' is missing"
    )
