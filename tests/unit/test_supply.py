"""What an installation consists of is pinned, listed, and can be compared with advisories."""

from __future__ import annotations

import importlib.util
import json
import re
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.version import Version

ROOT = Path(__file__).parents[2]


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "deploy" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


audit, sbom = program("audit"), program("sbom")


def test_the_locked_pip_is_one_without_known_defects_and_the_first_pip_takes_wheels_only() -> None:
    pins = audit.pinned([(ROOT / "requirements-build.lock").read_text("utf-8")])
    assert min(map(Version, pins["pip"])) >= Version("26.0")
    for name in ("Makefile", "deploy/Dockerfile"):
        commands = re.findall(r".*pip install.*requirements-build\.lock", (ROOT / name).read_text())
        assert commands
        assert all("--require-hashes --only-binary :all:" in command for command in commands)


def test_the_bill_of_materials_names_all_that_is_pinned_and_resolves() -> None:
    document = json.loads(sbom.SBOM.read_text("utf-8"))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    references = [part["bom-ref"] for part in document["components"]]
    assert len(references) == len(set(references))
    locks = [(ROOT / lock).read_text("utf-8") for lock in audit.LOCKS]
    for name, versions in audit.pinned(locks).items():
        assert {f"pkg:pypi/{name}@{version}" for version in versions} <= set(references)
    for entry in document["dependencies"]:
        assert {entry["ref"], *entry["dependsOn"]} <= set(references)
    [spark] = [each for each in document["dependencies"] if "/pyspark@" in each["ref"]]
    assert any("/py4j@" in reference for reference in spark["dependsOn"])
    scopes = {part["name"]: part["scope"] for part in document["components"]}
    needed = [scopes[name] for name in ("scipy", "nats-py", "pip", "pytest")]
    assert needed == ["required", "required", "excluded", "excluded"]
    assert any(reference.startswith("pkg:generic/spark-core") for reference in references)


def test_every_image_of_the_compose_stack_is_in_the_bill() -> None:
    compose = (ROOT / "docker-compose.yml").read_text("utf-8")
    foreign = {
        image for image in re.findall(r"image: (\S+):\$", compose) if "penstock" not in image
    }
    assert foreign == set(sbom.IMAGES)


NPM = {"ecosystem": "npm", "name": "nats-py"}


def advisory(events: list[dict[str, str]], **more: Any) -> dict[str, Any]:
    package = {"ecosystem": "PyPI", "name": "Nats.Py"}
    ranges = [
        {"type": "ECOSYSTEM", "events": events},
        {"type": "GIT", "events": [{"introduced": "0"}]},
    ]
    affected = {"package": package, "ranges": ranges} | more.pop("affected", {})
    return {"id": "X-1", "summary": "bad", "affected": [affected], **more}


@pytest.mark.parametrize(
    ("entry", "is_hit"),
    [
        (advisory([{"introduced": "0"}, {"fixed": "2.17"}]), True),
        (advisory([{"introduced": "0"}, {"fixed": "2.16.0"}]), False),
        (advisory([{"introduced": "0"}, {"last_affected": "2.16.0"}]), True),
        (advisory([{"introduced": "0"}, {"last_affected": "2.15"}]), False),
        (advisory([{"introduced": "2.16.1"}]), False),
        (advisory([{"introduced": "1"}, {"fixed": "2"}, {"introduced": "2.10"}]), True),
        (advisory([{"introduced": "not-a-version"}]), True),
        (advisory([], affected={"versions": ["2.16.0"]}), True),
        (advisory([{"introduced": "0"}], withdrawn="2026-01-01T00:00:00Z"), False),
        (advisory([{"introduced": "0"}], affected={"package": NPM}), False),
        ({"id": "X-2"}, False),
    ],
)  # fmt: skip
def test_an_advisory_counts_where_its_ranges_hold_the_pinned_version(entry, is_hit: bool) -> None:
    assert bool(list(audit.matches({"nats-py": {"2.16.0"}}, [entry]))) is is_hit


def test_advisories_come_from_a_folder_or_a_zip(tmp_path: Path, capsys) -> None:
    entry = advisory(
        [{"introduced": "0"}], affected={"package": {"ecosystem": "PyPI", "name": "click"}}
    )
    (tmp_path / "a.json").write_text(json.dumps(entry), "utf-8")
    assert audit.main([str(tmp_path)]) == 1
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(tmp_path / "a.json", "a.json")
    assert audit.main([str(tmp_path / "all.zip")]) == 1
    shown = capsys.readouterr().out
    assert shown.count(": X-1 bad") == 2
    assert shown.startswith("click ")


@pytest.mark.parametrize(("flags", "code"), [([], 0), (["--required"], 2)])
def test_without_advisories_the_audit_says_why_it_is_skipped(tmp_path, capsys, flags, code) -> None:
    assert audit.main([str(tmp_path / "none.zip"), *flags]) == code
    assert audit.main([str(tmp_path), *flags]) == code
    assert capsys.readouterr().out.count("audit skipped: ") == 2
