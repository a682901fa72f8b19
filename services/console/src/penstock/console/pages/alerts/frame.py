"""What the pages of alerts have in common."""

from __future__ import annotations

from typing import Any

from litestar import Response

from penstock.console.pages.acting.buttons import AnyRequest, done, viewer
from penstock.console.pages.rendering import Pages
from penstock.console.pages.sections import ALERTS
from penstock.console.web.scopes import Scope


def alert_page(
    pages: Pages, request: AnyRequest, template: str, tab: str, title: str, **values: Any
) -> Response[str]:
    """A page of the area, with its tabs.

    Args:
        pages: renders it.
        request: of its viewer.
        template: its file.
        tab: that is open.
        title: of the browser's tab.
        values: of its template; ``topics`` are what it is sent while it is open.
    """
    may_act = Scope.ALERTS in viewer(request).scopes
    topics = values.pop("topics", ())
    values = {"tabs": ALERTS, "tab": tab, "may_act": may_act, "problem": "", **values}
    values["acted"] = done(request)
    return pages.page(template, "Alerts", title, topics, **values)
