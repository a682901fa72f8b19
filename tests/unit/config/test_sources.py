"""Tables `[sources.NAME]`: bounds, and no secret in what is shown or published."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config.load import ConfigError, check, dump
from penstock.config.masking import MASK
from penstock.config.reloading import sparse


def source(**values: Any):
    return check({"sources": {"shop": {"kind": "celery", **values}}})


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"url": "redis://:hunter2@cache/0"}, "secret_file"),
        ({"url": "redis://app:hunter2@cache/0"}, "secret_file"),
        ({"url": "postgresql://cache/db?user=me&password=hunter2"}, "secret_file"),
        ({"url": "redis://[cache"}, "no address"),
        ({"url": "x" * 3_000}, "sources.shop.url"),
        ({"kind": "a b"}, "sources.shop.kind"),
        ({"interval_seconds": 0}, "sources.shop.interval_seconds"),
        ({"timeout_seconds": 1e9}, "sources.shop.timeout_seconds"),
        ({"password": "hunter2"}, "unknown setting 'password'"),
        ({"command": "count queue"}, "expected a list"),
    ],
)
def test_a_bad_source_is_refused_and_its_secret_is_not_shown(values, complaint) -> None:
    with pytest.raises(ConfigError) as caught:
        source(**values)
    assert complaint in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_secrets_of_options_and_commands_are_not_shown() -> None:
    settings = source(options={"api_key": "hunter2"}, command=["count", "--token", "hunter2"])
    assert "hunter2" not in dump(settings)
    published = sparse(settings)["sources"]["shop"]
    assert published["command"] == ["count", MASK]
    assert "hunter2" not in str(published)
    assert check({"sources": {"shop": published}}).sources["shop"].kind == "celery"
