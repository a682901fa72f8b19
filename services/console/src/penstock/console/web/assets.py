"""Style sheets and scripts: read once, served under names that change with their content."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import msgspec
from litestar import Request, Response, get
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from penstock.console.web.scopes import Scope, needs

PATH = "/static"
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
BUNDLES = {
    "app.css": ("console.css", "vendor/uPlot.min.css"),
    "app.js": (
        "trusted-types.js",
        "vendor/htmx.min.js",
        "vendor/hx-sse.min.js",
        "console.js",
        "copy.js",
    ),
    "pool.js": ("vendor/uPlot.iife.min.js", "charts.js"),
}
"""Files that are served as one, in this order: a page has few requests."""
_FOR_EVER = "public, max-age=31536000, immutable"


class Asset(msgspec.Struct, frozen=True, kw_only=True):
    """A file.

    Attributes:
        name: in its folder.
        digest: of its content, part of its URL.
    """

    name: str
    media_type: str
    digest: str
    body: bytes
    zipped: bytes


class Assets:
    """All files of the folder ``pages/static``, and what is served of them as one."""

    def __init__(self) -> None:
        folder = files("penstock.console.pages") / "static"
        self._by_name = {asset.name: asset for asset in _read(folder, "")}
        for name, parts in BUNDLES.items():
            self._by_name[name] = _asset(name, b"\n".join(self._by_name[one].body for one in parts))
        self._by_path = {f"{one.digest}/{one.name}": one for one in self._by_name.values()}

    def url(self, name: str) -> str:
        """Where a page finds the file. Raises KeyError: there is none of that name."""
        return f"{PATH}/{self._by_name[name].digest}/{name}"

    def handler(self) -> HTTPRouteHandler:
        """Serves them."""

        @get(f"{PATH}/{{path:path}}", opt=needs(Scope.PUBLIC), include_in_schema=False)
        async def asset(request: Request[Any, Any, Any], path: FromPath[str]) -> Response[bytes]:
            served = self._by_path.get(path.lstrip("/"))
            if served is None:
                raise NotFoundException("there is no such file")
            is_zipped = "gzip" in request.headers.get("accept-encoding", "")
            zipped = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"} if is_zipped else {}
            return Response(
                served.zipped if is_zipped else served.body,
                media_type=served.media_type,
                headers={"Cache-Control": _FOR_EVER, **zipped},
            )

        return asset


def _read(folder: Traversable, prefix: str) -> list[Asset]:
    read: list[Asset] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            read += _read(entry, f"{prefix}{entry.name}/")
        elif entry.name.rpartition(".")[2] in _TYPES:
            read.append(_asset(prefix + entry.name, entry.read_bytes()))
    return read


def _asset(name: str, body: bytes) -> Asset:
    return Asset(
        name=name,
        media_type=_TYPES[name.rpartition(".")[2]],
        digest=hashlib.sha256(body).hexdigest()[:12],
        body=body,
        zipped=gzip.compress(body, 9, mtime=0),
    )
