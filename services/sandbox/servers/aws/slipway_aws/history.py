"""The EC2 state as it was, for describes that lag behind writes.

While somebody wants stale answers, a copy of a region's state is taken before
every change. Each copy is the truth up to the moment of the change, so a
describe "as of T" is answered from the first copy that was valid past T.
"""

from __future__ import annotations

import pickle
from collections import deque
from dataclasses import dataclass
from typing import Any

LONGEST = 400


@dataclass
class _Copy:
    valid_until: float
    blob: bytes
    backend: Any = None


class History:
    """Copies by (account, region). Called under the world's lock."""

    def __init__(self) -> None:
        self._copies: dict[tuple[str, str], deque[_Copy]] = {}

    def note(self, place: tuple[str, str], backend: Any, until: float) -> None:
        """Keep the state as it is now, true until ``until``."""
        copies = self._copies.setdefault(place, deque(maxlen=LONGEST))
        copies.append(_Copy(until, pickle.dumps(backend, protocol=5)))

    def as_of(self, place: tuple[str, str], when: float) -> Any | None:
        """The backend as it was at ``when``, or None if it has not changed since."""
        for copy in self._copies.get(place, ()):
            if copy.valid_until > when:
                if copy.backend is None:
                    copy.backend = pickle.loads(copy.blob)
                return copy.backend
        return None

    def forget(self, before: float) -> None:
        """Drop copies that nobody can ask for any more."""
        for copies in self._copies.values():
            while copies and copies[0].valid_until < before:
                copies.popleft()

    def clear(self) -> None:
        """Drop everything."""
        self._copies.clear()
