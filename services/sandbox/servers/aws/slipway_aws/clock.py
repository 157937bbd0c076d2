"""The endpoint's own clock, which can run faster than the wall's and be moved on.

States take time on AWS: seconds for an instance, a day for the limit on volume
modifications. Tests want both without waiting, hence a clock of our own.
It never goes back.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class ClockState:
    """What has to be kept over a restart for the clock to go on."""

    now: float
    scale: float
    saved_at: float


class Clock:
    """Seconds since the endpoint was first started, times the scale."""

    def __init__(self, scale: float = 1.0) -> None:
        self._lock = threading.Lock()
        self._scale = _checked_scale(scale)
        self._base = 0.0
        self._since = time.monotonic()

    def now(self) -> float:
        """The time of the endpoint, in its own seconds."""
        with self._lock:
            return self._now()

    @property
    def scale(self) -> float:
        """How many of the endpoint's seconds pass in one of the wall's."""
        return self._scale

    def set_scale(self, scale: float) -> None:
        """Run at another speed from here on."""
        checked = _checked_scale(scale)
        with self._lock:
            self._base, self._since = self._now(), time.monotonic()
            self._scale = checked

    def advance(self, seconds: float) -> None:
        """Jump forward, as if the time had passed."""
        if seconds < 0:
            raise ValueError("the clock never goes back")
        with self._lock:
            self._base += seconds

    def save(self) -> ClockState:
        """The state to keep over a restart."""
        with self._lock:
            return ClockState(now=self._now(), scale=self._scale, saved_at=time.time())

    def restore(self, state: ClockState) -> None:
        """Go on from a saved state; the time in between has passed as well.

        The scale stays the one this process was started with.
        """
        away = max(0.0, time.time() - state.saved_at) * state.scale
        with self._lock:
            self._base, self._since = state.now + away, time.monotonic()

    def _now(self) -> float:
        return self._base + (time.monotonic() - self._since) * self._scale


def _checked_scale(scale: float) -> float:
    if not 0 < scale <= 1_000_000:
        raise ValueError("the time scale must be above 0")
    return float(scale)
