"""The accounts of the broker's configuration, as they follow from roles and keys."""

from __future__ import annotations

import pytest

from penstock.cli.deploy.accounts import Key, accounts, overlap
from penstock.cli.deploy.roles import ROLES


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        ("p.events.job.*.*", "p.events.job.>", "p.events.job.*.*"),
        ("p.events.>", "p.events.pool.*.ForecastMade", "p.events.pool.*.ForecastMade"),
        ("p.notices.recover.*", "p.notices.recover.h1", "p.notices.recover.h1"),
        ("p.*.a", "p.b.*", "p.b.a"),
        ("p.jobs.*", "p.jobs.*", "p.jobs.*"),
        ("p.jobs.*", "p.jobs.a.b", ""),
        ("p.jobs.a", "p.jobs.b", ""),
        ("p.jobs.>", "p.jobs", ""),
    ],
)
def test_what_two_patterns_have_in_common(one: str, two: str, both: str) -> None:
    assert (overlap(one, two), overlap(two, one)) == (both, both)


def keys(prefix: str = "penstock") -> list[Key]:
    return [Key(name=role, role=role, public=f"U{role}", prefix=prefix) for role in ROLES]


def test_only_one_account_keeps_streams_and_it_has_no_user() -> None:
    made = accounts(keys())
    assert [name for name, one in made.items() if "jetstream" in one] == ["penstock"]
    assert "users" not in made["penstock"]
    assert all(len(one["users"]) == 1 for name, one in made.items() if name != "penstock")


def test_the_account_with_the_streams_passes_nothing_on() -> None:
    assert all("stream" not in export for export in accounts(keys())["penstock"]["exports"])


def test_every_account_asks_the_account_of_its_own_installation_alone() -> None:
    made = accounts([*keys("a"), *keys("b")])
    for name, one in made.items():
        sources = [next(iter(i.values()))["account"] for i in one.get("imports", [])]
        assert {source.split("/")[0] for source in sources} <= {name.split("/")[0]}
