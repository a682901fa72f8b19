"""`penstock deploy keys`: what it makes, who can read it, and that it never overwrites."""

from __future__ import annotations

import stat
from pathlib import Path

import nkeys as signing
import pytest
from click.testing import CliRunner
from cryptography import x509

from penstock.bus import nkeys
from penstock.bus.protocol import BusRefused
from penstock.cli.deploy.roles import ROLES
from penstock.cli.main import cli


def made(folder: Path, *more: str) -> Path:
    result = CliRunner().invoke(
        cli, ["deploy", "keys", str(folder), *more], standalone_mode=False, catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return folder


def test_each_role_has_a_key_of_its_own_and_the_broker_knows_it(tmp_path: Path) -> None:
    folder = made(tmp_path / "secrets")
    users = (folder / "nats/accounts.conf").read_text("utf-8")
    seeds = {role: (folder / role / "nkey.seed").read_bytes() for role in ROLES}
    assert len(set(seeds.values())) == len(ROLES)
    for seed in seeds.values():
        public = signing.from_seed(bytearray(seed)).public_key.decode()
        assert public in users
        assert seed.decode() not in users


def test_only_the_owner_can_read(tmp_path: Path) -> None:
    folder = made(tmp_path / "secrets")
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in folder.rglob("*")}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}


def test_the_certificate_carries_the_names_it_was_asked_for(tmp_path: Path) -> None:
    folder = made(tmp_path / "secrets", "--name", "nats.example.org", "--name", "192.0.2.7")
    found = x509.load_pem_x509_certificate((folder / "nats/server.pem").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "nats.example.org" in names.get_values_for_type(x509.DNSName)
    assert "192.0.2.7" in map(str, names.get_values_for_type(x509.IPAddress))


def test_keys_in_use_are_never_overwritten(tmp_path: Path) -> None:
    folder = made(tmp_path / "secrets")
    before = (folder / "worker/nkey.seed").read_bytes()
    with pytest.raises(AssertionError, match="not overwritten"):
        made(folder)
    assert (folder / "worker/nkey.seed").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"SUNOSEED", b"\x00" * 58, b"S" * 5000])
def test_a_bad_seed_is_refused_without_being_told(tmp_path: Path, content: bytes) -> None:
    seed = tmp_path / "nkey.seed"
    seed.write_bytes(content)
    with pytest.raises(BusRefused, match="holds no NKey seed") as refused:
        nkeys.options(str(seed))
    assert "SUNOSEED" not in str(refused.value)


def test_a_missing_seed_is_named(tmp_path: Path) -> None:
    with pytest.raises(BusRefused, match="cannot be read"):
        nkeys.options(str(tmp_path / "none"))
