"""Pools whose workers are consumers of another system: their settings, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import ConfigError, Pool
from penstock.config.foreign import argv, ready_of
from penstock.config.foreign_pools import longest_drain_seconds, shared_queue
from penstock.config.foreign_presets import PRESETS, Usage, faults
from penstock.config.load import check
from penstock.config.reloading import sparse
from penstock.config.serving import serving
from penstock.config.topology import pools

COMMAND = ["celery", "-A", "shop", "worker", "-Q", "{queues}", "-n", "{worker}@{host}"]


def shop(**settings: Any) -> Pool:
    table = {"command": COMMAND, "strategy": "fixed", **settings}
    return pools(check({"pools": {"shop": table}}))["shop"]


def test_its_queues_are_none_of_ours() -> None:
    pool = shop(kind="group", queues=["queues:default", "mail.low"])
    assert (pool.is_foreign, pool.queues) == (True, ())
    assert pool.source_queues == ("queues:default", "mail.low")
    settings = check({"pools": {"shop": {"command": COMMAND, "strategy": "fixed"}, "mail": {}}})
    assert serving(settings).pool("shop") == ""


def test_a_command_names_queues_and_worker_without_a_shell() -> None:
    names = {"queues": ("a", "b"), "worker": "x-1", "host": "h", "pool": "shop"}
    assert argv(COMMAND, **names)[5:] == ["a,b", "-n", "x-1@h"]
    assert argv(["rq", "worker", "{queue}"], **names) == ["rq", "worker", "a", "b"]
    assert argv(["x", '{"a": 1}', "$HOME; {pool}"], **names)[1:] == ['{"a": 1}', "$HOME; shop"]


@pytest.mark.parametrize(
    "text",
    [
        "log:^ready$",
        "port:8080",
        "http:http://127.0.0.1:8080/health?a=1",
        "http:http://[::1]:8080",
        "file:/run/{worker}.ready",
        "seconds:2.5",
    ],
)
def test_forms_of_ready(text: str) -> None:
    assert shop(ready=text).ready == text
    assert ready_of(text).kind == text.partition(":")[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "log:",
        "log:(",
        "log:[",
        "port:0",
        "port:70000",
        "port:http",
        "http:http://example.org/",
        "http:https://127.0.0.1/",
        "http:http://127.0.0.1.example.org/",
        "http:http://user@127.0.0.1/",
        "file:relative",
        "seconds:-1",
        "seconds:nan",
        "seconds:1e9",
        "shell:true",
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"pools\.shop: ready: found .*expected|no regular"):
        shop(ready=text)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"kind": "exclusive"}, "nothing keeps two consumers of another system apart"),
        ({"kind": "spark"}, "kind = 'spark' and 'command' exclude each other"),
        ({"priorities": True}, "name the queues in priority order instead"),
        ({"tries": 3}, "tries is for jobs of our own"),
        ({"limit_job_memory_bytes": 10**9}, "limit_job_memory_bytes is for jobs of our own"),
        ({"command": ["x", "{user}"]}, r"command: found \{user\}, expected one of \{queues\}"),
        ({"command": ["x", ""]}, "found an empty argument"),
        ({"command": ["x", "a\0b"]}, "or one with a zero byte"),
        ({"environment": ["PENSTOCK_NATS__PASSWORD"]}, "variables of the platform"),
        ({"environment": ["PEN*"]}, "variables of the platform"),
        ({"environment": ["*"]}, "expected the name of a variable"),
        ({"environment": ["A=1"]}, "expected the name of a variable"),
        ({"strategy": "deadline"}, "nothing that it could be scaled by"),
        ({"runtime_seconds": 2}, "runtime_seconds is for queues of a source"),
        ({"source": "nowhere"}, r"expected a table \[sources.NAME\]"),
        ({"queues": ["a", "b"]}, "use kind = 'group'"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(settings: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        shop(**settings)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"source": "shop"}, "set command"),
        ({"ready": "seconds:3"}, "ready is for workers of another system"),
        ({"drain": {"seconds": 3}}, "drain is for workers of another system"),
        ({"environment": ["A"]}, "environment is for workers of another system"),
    ],
)
def test_without_a_command_its_settings_are_refused(table: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        pools(check({"pools": {"mail": table}}))


@pytest.mark.parametrize(
    ("drain", "reason"),
    [
        ({"signal": "KILL"}, "ends a process while it handles a message"),
        ({"signal": "STOP"}, "signal"),
        ({"seconds": 0}, "seconds"),
    ],
)
def test_a_drain_that_does_not_drain_is_refused(drain: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        shop(drain=drain)


def test_it_is_no_default_pool_and_serves_no_jobs() -> None:
    foreign = {"command": COMMAND, "strategy": "fixed"}
    with pytest.raises(ConfigError, match=r"default_pool names 'shop', .*of our own: mail"):
        pools(check({"default_pool": "shop", "pools": {"shop": foreign, "mail": {}}}))
    spark = {"kind": "spark", "serves": ["shop"]}
    with pytest.raises(ConfigError, match="serves names 'shop', expected a pool of jobs"):
        pools(check({"cluster": {"master": "local"}, "pools": {"shop": foreign, "s": spark}}))


def test_a_queue_of_a_source_belongs_to_one_pool() -> None:
    one, other = (
        Pool(
            name=name,
            kind="queue",
            queues=(),
            profile=shop().profile,
            source="redis",
            source_queues=("mail",),
            command=("x",),
        )
        for name in ("one", "other")
    )
    assert "is in pools 'one' and 'other'" in shared_queue({"one": one, "other": other})
    assert shared_queue({"one": one}) == ""


def test_others_see_the_program_only() -> None:
    settings = check({"pools": {"shop": {"command": ["celery", "--broker=redis://:SECRET@x"]}}})
    assert sparse(settings)["pools"]["shop"]["command"] == ["celery", "***"]


def test_what_ends_an_executor_waits_for_the_longest_drain() -> None:
    settings = check({"pools": {"shop": {"command": ["x"], "drain": {"seconds": 120}}}})
    assert longest_drain_seconds(settings) == 125
    assert longest_drain_seconds(check({"pools": {"mail": {}}})) == 30


GOOD = {
    "celery": "celery -A shop worker -c 1 -n {worker}@%h -l INFO --prefetch-multiplier=1",
    "rq": "rq worker -n {worker} {queue}",
    "arq": "arq shop.WorkerSettings",
    "dramatiq": "python -m dramatiq shop -p 1 -t 1 -Q {queue}",
    "procrastinate": "procrastinate -a shop.app worker -q {queues} --shutdown-graceful-timeout=55",
    "laravel": "php artisan queue:work redis --queue={queues} --sleep=1",
    "sidekiq": "bundle exec sidekiq -q{queue} -c 1 -t 55",
    "kafka": "/opt/shop/consumer --topics {queues}",
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_brings_what_the_pool_leaves_out(name: Any) -> None:
    command = GOOD[name].split()
    pool = shop(command=command, preset=name)
    assert (pool.ready, pool.drain) == (PRESETS[name].ready, PRESETS[name].drain)
    assert list(faults(name, pool.command, Usage(slots=pool.slots))) == []
    own = shop(command=command, preset=name, ready="seconds:3", drain={"seconds": 9})
    assert (own.ready, own.drain.seconds, own.drain.then) == ("seconds:3", 9, "KILL")
    settings = check({"pools": {"shop": {"command": command, "preset": name}}})
    assert longest_drain_seconds(settings) == PRESETS[name].drain.seconds + 5


@pytest.mark.parametrize(
    ("name", "flags", "slots", "fault"),
    [
        ("celery", "worker -c 1 -n {worker} -l INFO", 1, "--prefetch-multiplier=1"),
        ("celery", "worker -c1 -n{worker} -lINFO --prefetch-multiplier 4", 1, "prefetch"),
        ("celery", "worker -c 1 -n {worker} --prefetch-multiplier=1", 1, "level INFO"),
        (
            "celery",
            "worker --concurrency=4 -n {worker} -l info --prefetch-multiplier=1",
            1,
            "slots = 1",
        ),
        ("celery", "worker -c 2 -n w -l INFO --prefetch-multiplier=1", 2, "one node name"),
        (
            "celery",
            "worker -c 1 -n {worker} -l INFO --prefetch-multiplier=1 --autoscale=4,1",
            1,
            "--autoscale adds",
        ),
        ("celery", "worker -c 1 -n {worker} -l INFO --prefetch-multiplier=1 -D", 1, "--detach"),
        ("celery", "worker -c 1 -n {worker} -l INFO --prefetch-multiplier=1 -B", 1, "--beat"),
        (
            "celery",
            "worker -c 1 -n {worker} -l INFO --prefetch-multiplier=1 -P solo --without-heartbeat",
            1,
            "none for 10 s",
        ),
        ("rq", "worker --burst high", 1, "--burst ends"),
        ("rq", "worker --name one high", 1, "second worker of one name"),
        ("rq", "worker high", 4, "one job at a time"),
        ("arq", "shop.WorkerSettings --watch src", 1, "--watch restarts"),
        ("dramatiq", "shop -p 1", 1, "add '-p', '1', '-t', '1'"),
        ("procrastinate", "worker", 1, "stay 'doing': add it with a little below drain.seconds"),
        ("procrastinate", "worker --shutdown-graceful-timeout 60", 1, "timeout 60: expected"),
        ("procrastinate", "worker --shutdown-graceful-timeout 5", 1, "timeout 5: expected"),
        ("procrastinate", "worker --shutdown-graceful-timeout 55 -c 4", 1, "slots = 1"),
        ("procrastinate", "worker --shutdown-graceful-timeout 55 --one-shot", 1, "--one-shot ends"),
        ("laravel", "queue:work", 1, "--sleep=1"),
        ("laravel", "queue:listen --sleep=1", 1, "is 'queue:work'"),
        ("laravel", "horizon --sleep=1", 1, "scales workers by itself"),
        ("laravel", "queue:work --sleep=1 --max-jobs=100", 1, "--max-jobs ends"),
        ("laravel", "queue:work --sleep=1 --timeout=300", 1, "raise drain.seconds"),
        ("laravel", "queue:work --sleep=1", 4, "one job at a time"),
        ("sidekiq", "-c 1", 1, "gives its jobs 25 s to end: add it with"),
        ("sidekiq", "-c 1 -t 25", 1, "-t 25: expected"),
        ("sidekiq", "-t 55", 5, "add '-c', '5'"),
        ("sidekiq", "-c 1 -t 55 -d", 1, "--daemon"),
    ],
)
def test_flags_that_will_not_do_as_was_hoped(name: Any, flags: str, slots: int, fault: str) -> None:
    program = PRESETS[name].program
    [text] = faults(name, [f"/venv/bin/{program}", *flags.split()], Usage(slots=slots))
    assert fault in text


def test_an_argument_that_is_not_repeated_for_each_queue_is_noticed() -> None:
    command = ["bundle", "exec", "sidekiq", "-q", "{queue}", "-c", "1", "-t", "55"]
    [text] = faults("sidekiq", command, Usage(queues=2))
    assert "write '-q{queue}'" in text
    assert list(faults("sidekiq", command, Usage(queues=1))) == []


@pytest.mark.parametrize(
    ("name", "words", "fault"),
    [
        ("celery", "", "add '-Q', '{queues}'"),
        ("celery", "-Q malling", "does not take 'mail' and 'low': write '-Q'"),
        ("celery", "--queues=mail,urgent", "does not take 'low': write '-Q'"),
        ("rq", "", "does not take 'mail' and 'low': add '{queue}'"),
        ("rq", "low", "does not take 'mail': add '{queue}'"),
    ],
)
def test_a_command_that_does_not_take_the_pool_s_queues_is_noticed(
    name: Any, words: str, fault: str
) -> None:
    usage = Usage(queue_names=("mail", "low"))
    command = GOOD[name].replace(" {queue}", "").split()
    [text] = faults(name, [*command, *words.split()], usage)
    assert fault in text
    fitting = {"celery": ("-Q {queues}", "-Q low,mail"), "rq": ("{queue}", "mail low")}
    for flags in fitting[name]:
        assert list(faults(name, [*command, *flags.split()], usage)) == []


def test_a_preset_of_another_program_is_noticed() -> None:
    assert "does not run rq" in next(faults("rq", ["celery"], Usage()))
    assert list(faults("", ["celery"], Usage())) == []


def test_a_source_needs_no_command_where_another_autoscaler_runs_the_consumers() -> None:
    sources = {"shop": {"kind": "celery", "url": "redis://cache/0"}}
    table = {"source": "shop", "queues": ["queues:mail"], "advisor": True, "runtime_seconds": 2.5}
    settings = check({"sources": sources, "pools": {"mail": table}})
    pool = pools(settings)["mail"]
    assert (pool.is_foreign, pool.queues, pool.command) == (True, (), ())
    assert (pool.source_queues, pool.runtime_seconds) == (("queues:mail",), 2.5)
    assert serving(settings).pool("mail") == ""
    with pytest.raises(ConfigError, match=r"set command, such as .* or advisor = true"):
        pools(check({"sources": sources, "pools": {"mail": {**table, "advisor": False}}}))
