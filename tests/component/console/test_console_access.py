"""Who may read: closed by default, one scope for each handler, and only by its own host names."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.component.console.conftest import Site

from penstock.config import ConfigError
from penstock.config.load import check
from penstock.console.web import binding
from penstock.console.web.credentials import TokenFile
from penstock.console.web.scopes import scope_of

TOKEN = "pst_example"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


def test_every_handler_names_its_scope(site: Site) -> None:
    app = site.client._transport.app._app  # type: ignore[attr-defined]
    handlers = [handler for route in app.routes for handler in route.route_handlers]
    acting = [handler for handler in handlers if handler.http_methods != {"OPTIONS"}]
    assert len(acting) > 25
    assert [handler.paths for handler in acting if scope_of(handler.opt) is None] == []


@pytest.mark.parametrize(
    ("console", "problem"),
    [
        ({"address": "0.0.0.0"}, "no tokens are set"),
        ({"address": "::", "login_required": True}, "clear text"),
        ({"tokens_file": "nowhere"}, "nowhere cannot be read"),
        (
            {"tls_certificate_file": "nowhere", "tls_key_file": "nowhere"},
            "console.tls_certificate_file: nowhere cannot be read: No such",
        ),
        ({"alert_networks": ["10.1.0.0/99"]}, "expected a network such as '10.1.0.0/16'"),
        ({"hosts": ["https://penstock.example.org"]}, "expected a name without scheme and port"),
        ({"public_url": "penstock.example.org"}, "expected an address such as 'https://"),
        ({"tls_certificate_file": "cert.pem"}, "go together"),
    ],
)
def test_settings_that_cannot_be_used_or_open_the_console_are_refused(
    console: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        binding.check(check({"console": console}))


def test_loopback_needs_nothing() -> None:
    binding.check(check({}))
    binding.check(check({"console": {"address": "::1"}}))


@pytest.mark.parametrize("path", ["/", "/jobs", "/live", "/api/v1/jobs", "/api/v1/openapi.json"])
async def test_with_tokens_nothing_is_read_without_one(
    site: Site, path: str, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# of the team\nada read {DIGEST}\nbot jobs {'0' * 64}\n")
    caller = site.caller(TokenFile(tokens))
    refused = await caller.get(path)
    assert (refused.status_code, refused.headers["www-authenticate"][:6]) == (401, "Bearer")
    for wrong in (f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer", f"Bearer {'x' * 600}"):
        answer = await caller.get(path, headers={"Authorization": wrong})
        detail = answer.json()["detail"] if path.startswith("/api") else "the token is not valid"
        assert (answer.status_code, detail[:22]) == (401, "the token is not valid")
    if path != "/live":  # it does not end
        answer = await caller.get(path, headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200


async def test_a_token_without_the_scope_is_refused(site: Site, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"bot jobs {DIGEST}\n")
    answer = await site.caller(TokenFile(tokens)).get(
        "/api/v1/jobs", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    assert answer.status_code == 403
    assert "bot has the scopes jobs; this needs read" in answer.json()["detail"]


@pytest.mark.parametrize("line", ["ada read", "ada all " + "0" * 64, "ada read 12ab"])
def test_a_line_that_is_no_token_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"\n{line}\n")
    with pytest.raises(ConfigError, match="line 2: expected NAME SCOPES SHA256"):
        TokenFile(tokens)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9470", "127.0.0.1.evil.example"])
async def test_another_host_name_is_refused(site: Site, host: str) -> None:
    answer = await site.client.get("/api/v1/jobs", headers={"Host": host})
    assert (answer.status_code, "console.hosts" in answer.json()["detail"]) == (421, True)


@pytest.mark.parametrize("host", ["localhost:9470", "127.0.0.1", "[::1]:9470", "10.1.2.3"])
async def test_own_names_and_addresses_are_served(site: Site, host: str) -> None:
    assert (await site.client.get("/api/v1/version", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("path", ["/", "/gone", "/api/v1/gone", "/static/x/y.css"])
async def test_every_answer_has_the_security_headers(site: Site, path: str) -> None:
    headers = (await site.client.get(path)).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-request-id"]


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd"]
)
async def test_no_other_file_is_served(site: Site, path: str) -> None:
    assert (await site.client.get(f"/static/{path}")).status_code == 404
