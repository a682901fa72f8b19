"""What was measured, told at the end of the session."""

from __future__ import annotations

NOTED: list[str] = []


def note(line: str) -> None:
    NOTED.append(line)
