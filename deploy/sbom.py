"""Writes sbom.cdx.json: what an installation consists of, as CycloneDX 1.6.

python deploy/sbom.py            writes it (needs the virtual environment of `make install`)
python deploy/sbom.py --check    compares; exit code 1 when it is out of date

It is made from requirements.lock (whose hashes it does not repeat), the Java libraries inside the
locked pyspark, the scripts that the console serves, and the images and tags of .env. The same input
gives the same bytes: there is no time in it.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
ROOT = HERE.parent
SBOM = HERE / "sbom.cdx.json"
VENDORED = ROOT / "services/console/src/penstock/console/pages/static/vendored.toml"
ROLES = ("console", "decider", "executor", "metrics", "orchestrator")
IMAGES = {
    "nats": "NATS_TAG",
    "otel/opentelemetry-collector": "COLLECTOR_TAG",
    "jaegertracing/jaeger": "JAEGER_TAG",
    "prom/prometheus": "PROMETHEUS_TAG",
    "grafana/grafana": "GRAFANA_TAG",
}
Component = dict[str, Any]
_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==(\S+).*?(?=^[^\s#]|\Z)", re.M | re.S)
_VIA = re.compile(r"# via ?(\S*)|^ +#   (\S+)$", re.M)
_JAR = re.compile(r"(.+?)-(\d[\w.+-]*)\.jar")


def main(arguments: list[str]) -> int:
    text = written(document())
    if arguments != ["--check"]:
        SBOM.write_text(text, "utf-8")
        return 0
    if SBOM.is_file() and SBOM.read_text("utf-8") == text:
        return 0
    sys.stderr.write(f"out of date: {SBOM.name}; run: make lock, or python deploy/sbom.py\n")
    return 1


def written(parts: dict[str, Any]) -> str:
    """JSON with a line for each entry of a list, so that a change is a line."""
    lines = []
    for name, value in parts.items():
        if isinstance(value, list):
            shown = ",\n".join(f"  {json.dumps(entry, sort_keys=True)}" for entry in value)
            lines.append(f"{json.dumps(name)}: [\n{shown}\n]")
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def document() -> dict[str, Any]:
    """The whole bill of materials."""
    locked = (ROOT / "requirements.lock").read_text("utf-8")
    build = (ROOT / "requirements-build.lock").read_text("utf-8")
    components = [*python(locked), *python(build, scope="excluded"), *java(), *scripts(), *images()]
    components = list({part["bom-ref"]: part for part in reversed(components)}.values())
    components.sort(key=lambda part: part["bom-ref"])
    content = json.dumps(components, sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": "penstock", "bom-ref": "penstock"},
            "lifecycles": [{"phase": "build"}],
        },
        "components": components,
        "dependencies": [*dependencies(locked)],
    }


def python(lock: str, scope: str = "") -> Iterator[Component]:
    """Packages of a lock; those that only development needs have the scope ``excluded``."""
    used = {
        role: {name for name, _, _ in entries((HERE / f"requirements-{role}.lock").read_text())}
        for role in ROLES
    }
    run_time = set() if scope else _run_time(lock)
    for name, version, _ in entries(lock):
        roles = [role for role in ROLES if name in used[role] and not scope]
        yield {
            **_component("library", name, version, f"pkg:pypi/{name}@{version}"),
            "scope": scope or ("required" if name in run_time else "excluded"),
            "properties": [{"name": "penstock:image", "value": role} for role in roles],
        }


def entries(lock: str) -> Iterator[tuple[str, str, str]]:
    """Name, version and text of each entry of a lock."""
    for entry in _ENTRY.finditer(lock):
        yield canonicalize_name(entry[1]), entry[2], entry[0]


def dependencies(lock: str) -> Iterator[dict[str, Any]]:
    """The dependencies of each package, as the lock's comments name them."""
    versions: dict[str, list[str]] = {}
    needed: dict[str, set[str]] = {}
    for name, version, text in entries(lock):
        versions.setdefault(name, []).append(reference := f"pkg:pypi/{name}@{version}")
        for via in _VIA.finditer(text):
            if (dependent := via[1] or via[2]) and dependent != "-r":
                needed.setdefault(canonicalize_name(dependent), set()).add(reference)
    for name, references in sorted(versions.items()):
        for reference in references:
            yield {"ref": reference, "dependsOn": sorted(needed.get(name, ()))}


def java() -> Iterator[Component]:
    """The libraries in pyspark's own folder, by the names of their files."""
    spark = distribution("pyspark")
    for path in spark.files or ():
        if path.parent.name == "jars" and (jar := _JAR.fullmatch(path.name)):
            yield {
                **_component("library", jar[1], jar[2], f"pkg:generic/{jar[1]}@{jar[2]}"),
                "scope": "required",
                "properties": [
                    {"name": "penstock:image", "value": "executor"},
                    {"name": "penstock:inside", "value": f"pyspark {spark.version}"},
                ],
            }


def scripts() -> Iterator[Component]:
    """Files of npm packages that the console serves, with their hashes."""
    for name, about in tomllib.loads(VENDORED.read_text("utf-8")).items():
        package, version = about["package"], about["version"]
        purl = f"pkg:npm/{package}@{version}#{about['path']}"
        yield {
            **_component("library", package, version, purl),
            "scope": "required",
            "hashes": [{"alg": "SHA-512", "content": about["sha512"]}],
            "licenses": [{"license": {"id": about["license"]}}],
            "properties": [
                {"name": "penstock:image", "value": "console"},
                {"name": "penstock:file", "value": name},
            ],
        }


def images() -> Iterator[Component]:
    """Images of others by their tags, which may come to mean another image."""
    lines = (ROOT / ".env").read_text("utf-8").splitlines()
    values = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z_]+=", line))
    base, _, base_tag = values["BASE"].partition(":")
    for name, tag in [(base, base_tag), *((name, values[key]) for name, key in IMAGES.items())]:
        yield {
            **_component("container", name, tag, f"pkg:docker/{name}@{tag}"),
            "scope": "required",
        }


def _component(kind: str, name: str, version: str, purl: str) -> Component:
    return {"type": kind, "name": name, "version": version, "purl": purl, "bom-ref": purl}


def _run_time(lock: str) -> set[str]:
    """Packages above the heading of what only development needs, with all that they need."""
    needed = (ROOT / "requirements.in").read_text("utf-8").partition("# Development")[0]
    named = {canonicalize_name(name) for name in re.findall(r"^([A-Za-z][\w.-]*)", needed, re.M)}
    below = {entry["ref"]: entry["dependsOn"] for entry in dependencies(lock)}
    ahead = [reference for reference in below if _name(reference) in named]
    done: set[str] = set()
    while ahead:
        if (reference := ahead.pop()) not in done:
            done.add(reference)
            ahead += below[reference]
    return {_name(reference) for reference in done}


def _name(reference: str) -> str:
    return reference.removeprefix("pkg:pypi/").partition("@")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
