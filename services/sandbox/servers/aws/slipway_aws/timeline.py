"""What will happen later: state transitions waiting for their time.

A transition is data (a name and its arguments), never a closure, so that it
survives a restart with the resources it is about. It is carried out by the
first request after it is due: nobody can see the difference.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field


@dataclass(order=True)
class Transition:
    """One thing that happens at ``due``. Arguments are identifiers only."""

    due: float
    serial: int
    name: str = field(compare=False)
    account: str = field(compare=False)
    region: str = field(compare=False)
    target: str = field(compare=False)
    # Tells this occurrence from a later one about the same target.
    mark: str = field(compare=False, default="")
    held: bool = field(compare=False, default=False)


class Timeline:
    """Transitions in the order in which they fall due."""

    def __init__(self) -> None:
        self._heap: list[Transition] = []
        self._serial = 0

    def add(
        self, due: float, name: str, place: tuple[str, str], target: str, mark: str = ""
    ) -> None:
        """Let ``name`` happen to ``target`` at ``due`` in (account, region) ``place``."""
        self._serial += 1
        account, region = place
        heapq.heappush(
            self._heap, Transition(due, self._serial, name, account, region, target, mark)
        )

    def again(self, transition: Transition, due: float) -> None:
        """Put a transition back, to be tried again at ``due``."""
        transition.due = due
        heapq.heappush(self._heap, transition)

    def next_due(self, now: float) -> Transition | None:
        """Take the earliest transition that is due, if any."""
        if self._heap and self._heap[0].due <= now:
            return heapq.heappop(self._heap)
        return None

    def pending(self) -> list[Transition]:
        """Everything still to come, earliest first."""
        return sorted(self._heap)
