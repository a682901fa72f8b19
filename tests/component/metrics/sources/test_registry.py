"""Tables `[sources.NAME]` made into sources: what is refused, and what the refusal says."""

from __future__ import annotations

import pytest

from penstock.config.load import ConfigError
from penstock.config.load import check as config_check
from penstock.config.masking import masked
from penstock.config.sources import SourceTable
from penstock.config.topology import pools
from penstock.metrics.sources.registry import BUILTIN, check, doubts, faults, kind_of, open_source

HTTP = {"kind": "http", "url": "http://cache/stats", "options": {"waiting": "depth"}}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"kind": "htpp"}, "unknown kind 'htpp'; did you mean 'http'?"),
        ({"url": ""}, "needs a url http:// or https://HOST, found none"),
        ({"url": "ftp://cache"}, "found ftp://…"),
        ({"url": "cache:80/stats"}, "HOST, found one without its scheme"),
        ({"url": "//cache/stats"}, "HOST, found one without its scheme"),
        ({"url": "http://cache:99999999"}, "sources.shop: url"),
        ({"command": ["true"]}, "takes no command"),
        ({"options": {}}, "sources.shop.options: the setting 'waiting' is missing"),
        ({"options": {"waiting": "a", "claimd": "b"}}, "did you mean 'claimed'?"),
        ({"options": {"waiting": 3}}, "sources.shop.options.waiting"),
        ({"kind": "command", "url": ""}, "needs command"),
        ({"kind": "command", "command": ["true"]}, "takes no url"),
        ({"kind": "command", "command": ["true"], "url": "", "options": {"a": 1}}, "'a'"),
    ],
)
def test_a_table_that_fits_no_kind_is_refused(values, text) -> None:
    with pytest.raises(ConfigError) as caught:
        check({"shop": SourceTable(**{**HTTP, **values})})
    assert str(caught.value).startswith(("sources.shop", "[sources.shop"))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "url", "asks_for_all", "asks_for_one"),
    [
        ("sql", "postgresql://db/app", {"query": "select 1 as waiting"},
         {"query": "select 1 as waiting where %(queue)s = 'a'"}),
        ("prometheus", "http://cache", {"waiting": "up"}, {"waiting": 'up{q="{queue}"}'}),
        ("http", "http://cache", {"waiting": "depth"}, {"waiting": "{queue}.depth"}),
    ],
)  # fmt: skip
def test_queues_that_would_all_have_the_same_figures_are_warned_of(
    kind: str, url: str, asks_for_all: dict[str, str], asks_for_one: dict[str, str]
) -> None:
    def warnings(options: dict[str, str], queues: list[str]) -> list[str]:
        pool = {"source": "shop", "queues": queues, "kind": "group", "command": ["true"]}
        source = {"kind": kind, "url": url, "options": options}
        pool["runtime_seconds"] = 1.0
        settings = config_check({"sources": {"shop": source}, "pools": {"mail": pool}})
        return list(doubts(settings, pools(settings)))

    [warning] = warnings(asks_for_all, ["a", "b"])
    assert "its 2 queues have the same figures" in warning
    assert warnings(asks_for_all, ["a"]) == warnings(asks_for_one, ["a", "b"]) == []


@pytest.mark.parametrize(
    ("kind", "url", "text"),
    [
        ("celery", "redis://cache", "knows only a lower bound: set runtime_seconds"),
        ("rabbitmq", "amqp://cache", "reports at this url only what waits"),
    ],
)
def test_strategies_that_scale_by_arrivals_alone_are_refused_where_these_are_not_known(
    kind: str, url: str, text: str
) -> None:
    def errors(strategy: str) -> list[str]:
        pool = {"source": "shop", "command": ["true"], "strategy": strategy}
        source = {"kind": kind, "url": url}
        settings = config_check({"sources": {"shop": source}, "pools": {"mail": pool}})
        return list(faults(settings, pools(settings)))

    for strategy in ("deadline", "simple_rate"):
        [error] = errors(strategy)
        assert f"pools.mail: strategy '{strategy}' needs the rate of arrivals" in error
        assert text in error
    assert errors("backlog_only") == []


@pytest.mark.parametrize(
    ("url", "amqp_url", "text"),
    [
        ("http://mq:15672", "http://mq", "expected amqp://HOST or amqps://HOST"),
        ("http://mq:15672", "amqp://me:s3cret@mq", "amqp_url holds a password"),
        ("http://mq:15672", "amqp://me:s3cret@", "expected amqp://HOST"),
        ("http://mq:15672", "amqp://mq:port", "expected amqp://HOST"),
        ("amqp://mq", "amqp://mq", "goes with the url of the management API"),
    ],
)
def test_a_second_url_of_rabbitmq_that_cannot_be_one_is_refused(url, amqp_url, text) -> None:
    with pytest.raises(ConfigError) as caught:
        check({"shop": SourceTable(kind="rabbitmq", url=url, options={"amqp_url": amqp_url})})
    assert text in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "mode", "text"),
    [
        ("s3cret", 0o644, "has mode 644, expected 600"),
        ("", 0o600, "no secret in one line"),
        ("s3cret\nmore", 0o600, "no secret in one line"),
        (None, 0o600, "cannot be read"),
    ],
)
def test_a_secret_file_that_cannot_be_used_is_refused(tmp_path, content, mode, text) -> None:
    file = tmp_path / "db-password"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    table = SourceTable(**HTTP, secret_file=str(file))
    check({"shop": table})  # the file is on the machine of the metrics service
    with pytest.raises(ConfigError) as caught:
        open_source("shop", table)
    assert text in masked(str(caught.value))  # as logs show it
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_each_kind_that_ships_can_be_found_without_its_libraries(name) -> None:
    assert kind_of("shop", SourceTable(kind=name)).open


def test_an_installed_package_adds_a_kind(tmp_path, monkeypatch) -> None:
    metadata = tmp_path / "extra-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[penstock.sources]\nspool = extra_sources:SPOOL\nbroken = extra_sources:NONE\n"
        "odd = extra_sources:ODD\n"
    )
    (tmp_path / "extra_sources.py").write_text(
        "from penstock.metrics.sources import Kind\n"
        "SPOOL = Kind(open=lambda settings: settings, schemes=('spool',))\nODD = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    settings = open_source("shop", SourceTable(kind="spool", url="spool://here"))
    assert settings.url == "spool://here"  # type: ignore[attr-defined]
    for kind, text in (("broken", "cannot be loaded"), ("odd", "no sources.Kind")):
        with pytest.raises(ConfigError, match=text):
            open_source("shop", SourceTable(kind=kind))
