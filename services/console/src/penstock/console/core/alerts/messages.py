"""The words of a message. Pure."""

from __future__ import annotations

from typing import Any

from penstock.console.core.alerts.states import Entry, Notification
from penstock.console.core.times import instant
from penstock.views import wording

_WORDS = {
    "firing": "Firing",
    "repeat": "Still firing",
    "escalated": "Not acknowledged",
    "flapping": "Comes and goes",
    "resolved": "Resolved",
}
_MOST_LINES = 30


def title(notification: Notification) -> str:
    """One line, whatever the rule is called: it becomes the subject of mails."""
    return " ".join(_title(notification).split())


def _title(notification: Notification) -> str:
    entries = notification.entries
    if notification.is_digest:
        further = len(entries) + notification.further
        return f"{further} further messages of the last 10 minutes"
    first = entries[0]
    others = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
    return f"{_WORDS[first.kind]}: {first.rule}{others}"


def body(notification: Notification, address: str = "") -> str:
    """The whole message as text.

    Args:
        address: of the console, for links; empty for none.
    """
    shown = notification.entries[:_MOST_LINES]
    lines = [line for entry in shown for line in (*_lines(entry, address), "")]
    left = len(notification.entries) - len(shown) + notification.further
    if left:
        lines.append(f"{left} more are on the console's page Alerts.")
    return "\n".join(lines).strip()


def without_mentions(text: str) -> str:
    """The text as a chat shows it that would else notify all its members (``@everyone``)."""
    return text.replace("@", "@\u200b").replace("<!", "<\u200b!")


def payload(notification: Notification, address: str = "") -> dict[str, Any]:
    """The message for programs."""
    return {
        "version": 1,
        "id": notification.id,
        "at": _time(notification.at),
        "title": title(notification),
        "text": body(notification, address),
        "is_digest": notification.is_digest,
        "further": notification.further,
        "alerts": [
            {
                "state": "resolved" if entry.kind == "resolved" else "firing",
                "kind": entry.kind,
                "key": entry.alert,
                "incident": entry.incident,
                "rule": entry.rule,
                "severity": entry.severity,
                "labels": entry.labels,
                "text": entry.text,
                "advice": entry.advice,
                "fired_at": _time(entry.fired_at),
                "resolved_at": _time(entry.resolved_at) if entry.kind == "resolved" else None,
                "link": address + entry.link,
            }
            for entry in notification.entries
        ],
    }


def _lines(entry: Entry, address: str) -> list[str]:
    if entry.kind == "resolved":
        lasted = wording.seconds(max(0.0, entry.resolved_at - entry.fired_at))
        return [f"Resolved after {lasted}: {entry.rule}.", f"It was: {entry.text}"]
    lines = [f"{_WORDS[entry.kind]} ({entry.severity}): {entry.text}"]
    if entry.kind == "flapping":
        lines.append("No further messages are sent until it stays as it is for a while.")
    if entry.advice:
        lines.append(f"What to do: {entry.advice}")
    if address and entry.link:
        lines.append(f"{address}{entry.link}")
    return lines


def _time(at: float) -> str:
    return instant(round(at * 1e6)).isoformat()
