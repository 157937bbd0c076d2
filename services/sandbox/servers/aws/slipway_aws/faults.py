"""Faults that tests switch on: which calls they meet, and how often they fired.

A fault that never fired proves nothing, so each one counts. Faults live with
the process only: a restarted endpoint is a healthy one.
"""

from __future__ import annotations

import fnmatch
import itertools
import json
import random
import threading
import time
from dataclasses import asdict, dataclass, fields
from typing import Any

KINDS = {
    "fail": "answer with `code` instead of doing the work",
    "throttle": "answer as AWS does when the caller is too fast",
    "drop_request": "close the connection before doing the work",
    "drop_reply": "do the work, then close the connection without an answer",
    "delay": "wait `delay_s` of wall time, before the work or `after` it",
    "stale": "answer describes from `stale_s` ago",
    "stick": "keep state transitions named `transition` from happening",
    "spoil": "let transitions named `transition` end badly, with `code` or `message`:"
    " `snapshot-pending`, `instance-pending`, `volume-creating`, `volume-modifying` do",
}


@dataclass
class Fault:
    """One fault and whom it meets. Patterns are shell-like; empty matches all."""

    id: str = ""
    kind: str = ""
    service: str = "*"
    action: str = "*"
    account: str = "*"
    region: str = "*"
    # Text that must occur in the call's parameters (as JSON), such as an id.
    contains: str = ""
    # Let this many matching calls pass first, then fire this many times.
    skip: int = 0
    times: int | None = None
    probability: float = 1.0
    code: str = "InternalError"
    message: str = "Injected by the sandbox."
    status: int | None = None
    delay_s: float = 0.0
    after: bool = False
    stale_s: float = 0.0
    transition: str = "*"
    fired: int = 0

    def remaining(self) -> int | None:
        """How often it may still fire; None is without limit."""
        return None if self.times is None else max(0, self.times - self.fired)

    def as_dict(self) -> dict[str, Any]:
        """For the control API."""
        return {**asdict(self), "remaining": self.remaining()}


class Faults:
    """The faults switched on. Safe for threads."""

    def __init__(self) -> None:
        self._faults: dict[str, Fault] = {}
        self._changed = threading.Condition()
        self._ids = itertools.count(1)
        self._random = random.Random()

    def add(self, values: dict[str, Any]) -> Fault:
        """Switch a fault on."""
        fault = _parsed(values)
        with self._changed:
            fault.id = fault.id or f"f-{next(self._ids)}"
            self._faults[fault.id] = fault
            self._changed.notify_all()
        return fault

    def remove(self, fault_id: str) -> Fault | None:
        """Switch one off; calls it is delaying go on at once."""
        with self._changed:
            fault = self._faults.pop(fault_id, None)
            self._changed.notify_all()
        return fault

    def clear(self) -> list[Fault]:
        """Switch all off."""
        with self._changed:
            gone, self._faults = list(self._faults.values()), {}
            self._changed.notify_all()
        return gone

    def all(self) -> list[Fault]:
        """Every fault, oldest first."""
        with self._changed:
            return list(self._faults.values())

    def strike(self, kind: str, call: Any, after: bool = False) -> Fault | None:
        """The first fault of a kind that meets this call now, counted as fired."""
        with self._changed:
            for fault in self._faults.values():
                meant = fault.kind == kind and fault.after == after and _meets(fault, call)
                if meant and self._fires(fault):
                    return fault
        return None

    def sticks(self, transition: Any) -> bool:
        """Whether a fault keeps this transition from happening now."""
        with self._changed:
            for fault in self._faults.values():
                meant = fault.kind == "stick" and _holds(fault, transition)
                if meant and (transition.held or self._fires(fault)):
                    return True
        return False

    def spoils(self, transition: Any, about: str = "") -> Fault | None:
        """The first fault that lets this transition end badly now; ``about``: what it may name too."""
        with self._changed:
            for fault in self._faults.values():
                meant = fault.kind == "spoil" and _holds(fault, transition, about)
                if meant and self._fires(fault):
                    return fault
        return None

    def wait(self, fault: Fault) -> None:
        """Wait as long as a delay says, or until it is switched off."""
        until = time.monotonic() + fault.delay_s
        with self._changed:
            while fault.id in self._faults and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)

    def _fires(self, fault: Fault) -> bool:
        if fault.skip > 0:
            fault.skip -= 1
            return False
        if fault.remaining() == 0 or self._random.random() >= fault.probability:
            return False
        fault.fired += 1
        return True


def _parsed(values: dict[str, Any]) -> Fault:
    known = {field.name for field in fields(Fault)} - {"fired"}
    unknown = set(values) - known
    if unknown:
        raise ValueError(f"unknown fields {sorted(unknown)}; known: {sorted(known)}")
    if values.get("kind") not in KINDS:
        raise ValueError(f"kind must be one of {sorted(KINDS)}")
    return Fault(**values)


def _meets(fault: Fault, call: Any) -> bool:
    wanted = (fault.service, fault.action, fault.account, fault.region)
    found = (call.service, call.action, call.account, call.region)
    if not all(
        fnmatch.fnmatchcase(value, pattern) for value, pattern in zip(found, wanted, strict=True)
    ):
        return False
    return not fault.contains or fault.contains in json.dumps(call.params, default=str)


def _holds(fault: Fault, transition: Any, about: str = "") -> bool:
    return (
        fnmatch.fnmatchcase(transition.name, fault.transition)
        and fnmatch.fnmatchcase(transition.region, fault.region)
        and fault.contains in f"{transition.target} {transition.mark} {about}"
    )
