"""Libraries that a light client lacks: what needs them names the extra to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock import telemetry
from penstock.bus import access
from penstock.config import ConfigError, Settings
from penstock.config.extras import ExtraMissing
from penstock.jobs.payloads import encryption

HEAVY = ("cryptography", "nkeys", "uvloop", "prometheus_client", "psutil", "opentelemetry.sdk")


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports of the libraries that extras bring fail, as where no extra is installed."""
    for name in [loaded for loaded in sys.modules if loaded.startswith("penstock.telemetry.otlp")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [*HEAVY, *(loaded for loaded in sys.modules if loaded.startswith(HEAVY))]:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("light")
def test_keys_name_their_extra(tmp_path: Path) -> None:
    text = r"nats\.{} needs the package nkeys; run: pip install 'penstock-client\[keys\]'"
    with pytest.raises(ExtraMissing, match=text.format("nkey_file")):
        access.options("nats://127.0.0.1", nkey_file=str(tmp_path / "seed"))
    with pytest.raises(ExtraMissing, match=text.format("credentials_file")):
        access.options("nats://127.0.0.1", credentials_file=str(tmp_path / "creds"))


@pytest.mark.usefixtures("light")
def test_encryption_names_its_extra(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.touch(mode=0o600)
    keys.write_text(f"first {'A' * 43}=\n")
    with pytest.raises(ConfigError, match=r"encryption\.key_file needs .* 'penstock-client\[encr"):
        encryption.load(str(keys))


@pytest.mark.usefixtures("light")
def test_telemetry_names_its_extra() -> None:
    settings = Settings()
    settings = replace(
        settings, telemetry=replace(settings.telemetry, endpoint="http://127.0.0.1:1")
    )
    with pytest.raises(ExtraMissing, match=r"needs the package \w+; .*'penstock-client\[telemetry"):
        telemetry.setup("penstock-client", "1", settings)


def test_a_client_imports_no_library_of_an_extra() -> None:
    program = (
        "import sys\n"
        "from penstock.jobs import Client, NamedJob, SyncClient, job\n"
        "import penstock.bus.late, penstock.bus.nats\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "[]", result.stderr
