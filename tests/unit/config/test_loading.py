"""Settings: where they come from, and what is said of wrong ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.config import ConfigError, load
from penstock.config.load import check, dump


def settings_of(toml: str, tmp_path: Path, **variables: str) -> Any:
    file = tmp_path / "penstock.toml"
    file.write_text(toml)
    return load(file, environment=variables)


class TestWhereTheyComeFrom:
    def test_nothing_given_is_the_defaults(self, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.chdir(tmp_path)
        assert load(environment={}).prefix == "penstock"

    def test_the_file_in_this_folder_is_found(self, tmp_path: Path, monkeypatch: Any) -> None:
        (tmp_path / "penstock.toml").write_text('prefix = "here"')
        monkeypatch.chdir(tmp_path)
        assert load(environment={}).prefix == "here"

    def test_a_variable_names_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "other.toml").write_text('prefix = "other"')
        found = load(environment={"PENSTOCK_CONFIG": str(tmp_path / "other.toml")})
        assert found.prefix == "other"

    def test_environment_goes_over_file_and_flags_over_both(self, tmp_path: Path) -> None:
        file = tmp_path / "penstock.toml"
        file.write_text('[nats]\nurl = "nats://file"\nuser = "file"\npassword = "file"')
        variables = {"PENSTOCK_NATS__USER": "variable", "PENSTOCK_NATS__PASSWORD": "variable"}

        nats = load(file, variables, {"nats.password": "flag", "nats.user": None}).nats

        assert (nats.url, nats.user, nats.password) == ("nats://file", "variable", "flag")

    @pytest.mark.parametrize(
        ("variable", "text", "section", "key", "expected"),
        [
            ("HOST__MAX_WORKERS", "5", "host", "max_workers", 5),
            ("DECIDER__PLACEMENT", "pack", "decider", "placement", "pack"),
            ("JOBS__MODULES", '["a", "b"]', "jobs", "modules", ("a", "b")),
            ("NATS__PASSWORD", "12345", "nats", "password", "12345"),
            ("NATS__PASSWORD", "true", "nats", "password", "true"),
            ("NATS__PASSWORD", '"quoted"', "nats", "password", '"quoted"'),
            ("TELEMETRY__SAMPLE_SHARE", "0.5", "telemetry", "sample_share", 0.5),
            ("STREAMS__REPLICAS", "3", "streams", "replicas", 3),
        ],
    )
    def test_a_variable_is_read_as_its_setting_is_declared(
        self, variable: str, text: str, section: str, key: str, expected: Any
    ) -> None:
        found = load(environment={f"PENSTOCK_{variable}": text})
        assert getattr(getattr(found, section), key) == expected

    def test_a_variable_finds_the_pool_whose_name_has_capitals(self, tmp_path: Path) -> None:
        found = settings_of("[pools.Mail]", tmp_path, PENSTOCK_POOLS__MAIL__MAX_WORKERS="7")
        assert {name: pool.max_workers for name, pool in found.pools.items()} == {"Mail": 7}

    def test_a_variable_holds_one_value_only(self) -> None:
        with pytest.raises(ConfigError, match=r"host\.max_workers"):
            load(environment={"PENSTOCK_HOST__MAX_WORKERS": "5\ndrain_seconds = 0"})


class TestWhatIsSaidOfWrongOnes:
    @pytest.mark.parametrize(
        ("tree", "said"),
        [
            ({"prefx": "x"}, "unknown setting 'prefx'; did you mean 'prefix'?"),
            ({"nats": {"ur": "x"}}, "[nats] unknown setting 'ur'; did you mean 'url'?"),
            ({"claim_seconds": 3}, "unknown setting 'claim_seconds'; it belongs in [jobs]"),
            (
                {"pools": {"good": {}, "reports": {"min_worker": 3}}},
                "[pools.reports] unknown setting 'min_worker'; did you mean 'min_workers'?",
            ),
            (
                {"profiles": {"fast": {"slaseconds": 3}}},
                "[profiles.fast] unknown setting 'slaseconds'; did you mean 'sla_seconds'?",
            ),
            (
                {"telemetry": {"zzz": 3}},
                "[telemetry] unknown setting 'zzz'; known: endpoint, ",
            ),
            ({"nats": {"url": 3}}, "nats.url: expected text, found 3"),
            (
                {"pools": {"mails": {"sla_seconds": "five"}}},
                'pools.mails.sla_seconds: expected a number, found the text "five"',
            ),
            ({"logs": {"enabled": "no"}}, "logs.enabled: expected true or false, found the text"),
            ({"nats": 3}, "nats: expected a table: [nats], found 3"),
            (
                {"pools": {"good": {"min_workers": 1}, "a": {"min_workers": "3"}}},
                'pools.a.min_workers: expected a whole number, found the text "3"',
            ),
            (
                {"pools": {"a": {"kind": "grp"}}},
                "pools.a.kind: expected one of 'exclusive', 'group', 'queue', 'spark', found 'grp'",
            ),
            (
                {"pools": {"a": {"queues": ["x", 3]}}},
                "pools.a.queues[1]: expected text, found 3",
            ),
            ({"pools": {"a": 3}}, "pools.a: expected a table: [pools.a], found 3"),
            ({"excluded": "x"}, 'excluded: expected a list: ["…", "…"], found the text "x"'),
            (
                {"jobs": {"claim_seconds": 0}},
                "jobs.claim_seconds: expected a number >= 1, found 0",
            ),
            ({"nats": {"request_timeout_seconds": float("nan")}}, "found nan"),
            ({"nats": {"request_timeout_seconds": float("inf")}}, "found inf"),
            ({"host": {"name": "a.b"}}, "host.name: expected text matching regex"),
            ({"prefix": "a b"}, "prefix: expected text matching regex"),
        ],
    )
    def test_it_says_where_what_and_what_instead(self, tree: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigError) as error:
            check(tree)
        assert said in str(error.value)

    def test_the_file_is_named_where_it_is_wrong(self, tmp_path: Path) -> None:
        wrong = r'sla_seconds: expected a number, found the text "five" \(in .*penstock\.toml\)'
        with pytest.raises(ConfigError, match=wrong):
            settings_of('[pools.mails]\nsla_seconds = "five"', tmp_path)
        with pytest.raises(ConfigError, match=r"did you mean 'url'\? \(in .*penstock\.toml\)"):
            settings_of('[nats]\nur = "x"', tmp_path, PENSTOCK_NATS__USER="ann")

    def test_it_names_the_variable(self) -> None:
        with pytest.raises(ConfigError, match=r"\(from PENSTOCK_NATS__URLS\)"):
            load(environment={"PENSTOCK_NATS__URLS": "x"})
        with pytest.raises(
            ConfigError, match=r'found the text "five" \(from PENSTOCK_HOST__MAX_WORKERS\)'
        ):
            load(environment={"PENSTOCK_HOST__MAX_WORKERS": "five"})

    def test_a_value_where_a_table_is_needed(self) -> None:
        with pytest.raises(ConfigError, match="'host' is a value, not a table"):
            load(environment={"PENSTOCK_HOST": "x", "PENSTOCK_HOST__NAME": "x"})

    def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="no such file"):
            load(tmp_path / "none.toml", environment={})
        with pytest.raises(ConfigError, match="cannot be read as TOML"):
            load(tmp_path, environment={})
        with pytest.raises(ConfigError, match=r"penstock\.toml: cannot be read as TOML.*line 1"):
            settings_of("prefix = x\n", tmp_path)


def test_dump_masks_what_is_secret() -> None:
    settings = check(
        {
            "nats": {"url": "nats://u:hidden@host:4222", "user": "u", "password": "hidden"},
            "spark": {
                "remote": "sc://host:1/;token=hidden;user_id=a",
                "conf": {"spark.my.secretKey": "hidden", "spark.ui.enabled": "false"},
            },
        }
    )
    text = dump(settings)
    assert "hidden" not in text
    shown = json.loads(text)
    assert shown["nats"]["url"] == "nats://***@host:4222"
    assert shown["spark"]["remote"] == "sc://host:1/;token=***;user_id=a"
    assert shown["spark"]["conf"]["spark.ui.enabled"] == "false"
    assert json.loads(dump(check({})))["nats"]["password"] == ""
