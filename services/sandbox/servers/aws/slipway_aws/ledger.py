"""Counts of calls and a journal of the latest ones, for tests to read.

"No second machine was bought" is proved by counting RunInstances, not by
looking at the machines that happen to be left.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Any

from .settings import Settings

LONGEST_TEXT = 200

# The beginnings of the names of actions that change nothing.
READING = ("Describe", "Get", "List", "Test")


class Ledger:
    """Counters and journal. Safe for threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._calls: Counter[tuple[str, str, str]] = Counter()
        self._results: Counter[tuple[str, str, str, str]] = Counter()
        # Apart, because reads come by the hundred: they would push out what changed something.
        self._reads: deque[dict[str, Any]] = deque()
        self._changes: deque[dict[str, Any]] = deque()
        self._serial = 0

    def record(self, entry: dict[str, Any]) -> None:
        """Note a finished call; ``result`` is ``ok`` or an error code."""
        key = (entry["service"], entry["action"], entry["region"])
        with self._lock:
            self._serial += 1
            self._calls[key] += 1
            self._results[(*key, entry["result"])] += 1
            kept = self._reads if entry["action"].startswith(READING) else self._changes
            kept.append({"serial": self._serial, **entry})
            for calls in (self._reads, self._changes):
                while len(calls) > self._settings.journal_length:
                    calls.popleft()

    @property
    def serial(self) -> int:
        """The number of the latest call."""
        with self._lock:
            return self._serial

    def counters(self, region: str | None = None) -> dict[str, Any]:
        """Calls by action, with their results, of one region or all."""
        with self._lock:
            totals: dict[str, dict[str, Any]] = {}
            for (service, action, where, result), count in self._results.items():
                if region in (None, where):
                    found = totals.setdefault(
                        f"{service}:{action}", {"total": 0, "results": Counter()}
                    )
                    found["total"] += count
                    found["results"][result] += count
        return {name: totals[name] for name in sorted(totals)}

    def journal(self, since: int = 0, action: str | None = None) -> list[dict[str, Any]]:
        """The latest calls after a serial number, oldest first."""
        with self._lock:
            found = [
                entry
                for kept in (self._reads, self._changes)
                for entry in kept
                if entry["serial"] > since and action in (None, entry["action"])
            ]
        return sorted(found, key=lambda entry: entry["serial"])

    def reset(self) -> None:
        """Forget counts and journal; serial numbers go on."""
        with self._lock:
            self._calls.clear()
            self._results.clear()
            self._reads.clear()
            self._changes.clear()


def shortened(value: Any) -> Any:
    """Parameters as the journal keeps them: long texts cut, bytes as text."""
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shortened(item) for item in value]
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    text = str(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({len(text)})"
