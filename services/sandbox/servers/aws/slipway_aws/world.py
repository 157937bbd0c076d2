"""All that the strict layer knows, and the one lock around it and Moto.

Moto's backends are plain dictionaries without locks; every request that touches
them runs under :attr:`World.lock`. The world settles (carries out what is due)
at the start of each request, so no thread of its own is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from moto.ec2.models import ec2_backends

from .clock import Clock
from .contents import Contents
from .faults import Faults
from .history import History
from .ledger import Ledger
from .settings import Settings
from .throttle import Throttle
from .timeline import Timeline, Transition
from .tokens import Tokens

# How soon a transition that cannot happen yet is looked at again.
TRY_AGAIN_S = 0.1
# Copies older than the lag by this much are of no use to anyone.
HISTORY_MARGIN_S = 60.0
TIDY_EVERY_S = 600.0


@dataclass
class Change:
    """A batch of record changes that Route 53 has accepted."""

    id: str
    zone_id: str
    accepted_at: float
    insync_at: float
    submitted_at: Any
    comment: str | None


class Keeper(Protocol):
    """Keeps the world in a file."""

    # How long the last write took, and how much it wrote.
    seconds: float
    size: int

    def start(self) -> None:
        """Begin to write whenever the world has changed."""

    def wait(self, version: int) -> None:
        """Return when the file holds this version or a later one."""

    def flush(self) -> None:
        """Write now."""

    def close(self) -> None:
        """Write for the last time and stop."""


# A transition's handler returns True to be called again a little later.
Handler = Callable[["World", Transition], bool | None]


class World:
    """The endpoint's state beside Moto's."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.lock = threading.RLock()
        self.settings = settings
        self.clock = clock
        self.faults = Faults()
        self.ledger = Ledger(settings)
        self.throttle = Throttle()
        self.history = History()
        self.timeline = Timeline()
        self.tokens = Tokens()
        # Ids that describes do not know yet, and from when on they do.
        self.unseen: dict[str, float] = {}
        self.changes: dict[str, Change] = {}
        self.handlers: dict[str, Handler] = {}
        # Raised by one with every change that a restart must not lose.
        self.version = 0
        self.store: Keeper | None = None
        # The bytes of snapshots, if disks have any.
        self.contents: Contents | None = None
        self._tidied_at = 0.0
        # When the transition that is being carried out was due.
        self._carrying_out: float | None = None

    def now(self) -> float:
        """The endpoint's time."""
        return self.clock.now()

    def later(
        self, seconds: float, name: str, place: tuple[str, str], target: str, mark: str = ""
    ) -> None:
        """Let a transition happen in so many seconds, counted from the one going on."""
        since = self.now() if self._carrying_out is None else self._carrying_out
        self.timeline.add(since + seconds, name, place, target, mark)

    def conceal(self, resource_id: str) -> None:
        """Hide a new id from describes for as long as AWS might."""
        lag = self.settings.new_id_lag_s
        if lag > 0:
            self.unseen[resource_id] = self.now() + lag

    def concealed(self, resource_id: str) -> bool:
        """Whether describes do not know this id yet."""
        until = self.unseen.get(resource_id)
        if until is None:
            return False
        if until > self.now():
            return True
        del self.unseen[resource_id]
        return False

    def settle(self) -> None:
        """Carry out every transition that is due, in order."""
        now = self.now()
        while (transition := self.timeline.next_due(now)) is not None:
            if self.faults.sticks(transition):
                transition.held = True
                self.timeline.again(transition, now + TRY_AGAIN_S)
                continue
            transition.held = False
            self.note_change((transition.account, transition.region), transition.due)
            self._carry_out(transition, now)
            self.version += 1
        self._tidy(now)

    def _carry_out(self, transition: Transition, now: float) -> None:
        self._carrying_out = transition.due
        try:
            if self.handlers[transition.name](self, transition):
                self.timeline.again(transition, now + TRY_AGAIN_S)
        finally:
            self._carrying_out = None

    def keep(self, version: int) -> None:
        """Wait until the state file holds this version, if there is one."""
        if self.store is not None:
            self.store.wait(version)

    def longest_lag(self) -> float:
        """How far back a describe may have to look; 0 if none ever does."""
        faults = [fault.stale_s for fault in self.faults.all() if fault.kind == "stale"]
        return max([self.settings.describe_lag_s, *faults])

    def note_change(self, place: tuple[str, str], until: float | None = None) -> None:
        """Keep the state before a change, if stale answers are wanted."""
        if self.longest_lag() > 0:
            backend = ec2_backends[place[0]][place[1]]
            self.history.note(place, backend, self.now() if until is None else until)

    def note_all(self) -> None:
        """Keep the state of every region: the oldest that stale answers can show."""
        for account, region, _ in self.ec2_places():
            self.note_change((account, region))

    def ec2_places(self) -> Iterator[tuple[str, str, Any]]:
        """Every (account, region) with its EC2 backend."""
        for account, regions in list(ec2_backends.items()):
            for region, backend in list(regions.items()):
                yield account, region, backend

    def forget_contents(self) -> None:
        """Remove the copies that nobody can ask for any more.

        A volume made from a snapshot needs it until its own disk is there, even
        if the snapshot has been deleted since: on EC2 its bytes are its own.
        """
        if self.contents is None:
            return
        needed: set[str] = set()
        for _, _, backend in self.ec2_places():
            needed.update(backend.snapshots)
            for volume in backend.volumes.values():
                if volume.snapshot_id and self.contents.disk(volume.id) is None:
                    needed.add(volume.snapshot_id)
        self.contents.keep_only(needed)

    def _tidy(self, now: float) -> None:
        lag = self.longest_lag()
        if lag <= 0:
            self.history.clear()
        else:
            self.history.forget(now - lag - HISTORY_MARGIN_S)
        if now - self._tidied_at < TIDY_EVERY_S:
            return
        self._tidied_at = now
        self.tokens.forget_old(now, self.settings.token_memory_s)
        for resource_id in [key for key, until in self.unseen.items() if until <= now]:
            del self.unseen[resource_id]
        old = now - self.settings.token_memory_s
        for change_id in [key for key, made in self.changes.items() if made.insync_at < old]:
            del self.changes[change_id]
