"""The state file: what a restarted endpoint goes on with.

Moto's objects and the layer's are pickled together, because the layer refers to
Moto's objects (a client token stands for a reservation) and both must come back
as one graph. A file is replaced whole, never written in place. An answer to a
mutating call waits for the file, so that nothing a client was told is lost by a
crash; many calls share one write.
"""

from __future__ import annotations

import logging
import os
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import moto
from moto.ec2.models import ec2_backends
from moto.route53.models import route53_backends

from .state_error import StateError
from .world import World

log = logging.getLogger(__name__)

# To be raised whenever a class that is pickled changes.
FORMAT = 1
# Share of the time that writing may take; the lock is held meanwhile.
WORKING_SHARE = 0.5
LONGEST_WAIT_S = 10.0


class Store:
    """Writes the world to its file, in a thread of its own."""

    def __init__(self, path: Path, world: World, wait_for_file: bool) -> None:
        self._path = path
        self._world = world
        self._wait_for_file = wait_for_file
        self._saved = world.version
        self._changed = threading.Condition()
        # One writer at a time: two would share the file that is not whole yet, and the older could win.
        self._writing = threading.Lock()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="state-file", daemon=True)
        self.seconds = 0.0
        self.size = 0

    def start(self) -> None:
        """Begin to write whenever the world has changed."""
        self._thread.start()

    def wait(self, version: int) -> None:
        """Return when the file holds this version, or late with a warning."""
        until = time.monotonic() + LONGEST_WAIT_S
        with self._changed:
            self._changed.notify_all()
            if not self._wait_for_file:
                return
            while self._saved < version and not self._closing:
                left = until - time.monotonic()
                if left <= 0:
                    log.warning("the state file is late: version %s is not in it", version)
                    return
                self._changed.wait(left)

    def flush(self) -> None:
        """Write now."""
        self._save()

    def close(self) -> None:
        """Write for the last time and stop."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout=LONGEST_WAIT_S)
        self._save()

    def _run(self) -> None:
        while True:
            with self._changed:
                # Transitions change the world without a mutating call: look again
                # now and then even if nobody has said that something changed.
                while self._saved == self._world.version and not self._closing:
                    self._changed.wait(0.5)
                if self._closing:
                    return
            try:
                self._save()
            except Exception:
                log.exception("cannot write the state file %s", self._path)
                time.sleep(1.0)
            time.sleep(self.seconds * (1 / WORKING_SHARE - 1))

    def _save(self) -> None:
        with self._writing:
            self._write()

    def _write(self) -> None:
        started = time.monotonic()
        with self._world.lock:
            version = self._world.version
            blob = pickle.dumps(_payload(self._world), protocol=5)
        temporary = self._path.with_suffix(".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(blob)
        os.replace(temporary, self._path)
        with self._changed:
            self._saved = max(self._saved, version)
            self.seconds, self.size = time.monotonic() - started, len(blob)
            self._changed.notify_all()


def load(path: Path, world: World) -> bool:
    """Take over what a state file holds; False if there is none."""
    try:
        blob = path.read_bytes()
    except FileNotFoundError:
        return False
    try:
        payload = pickle.loads(blob)
        found = (payload["format"], payload["moto"])
    except Exception as error:
        raise StateError(f"cannot read the state file {path}: {error!r}") from error
    if found != (FORMAT, moto.__version__):
        raise StateError(
            f"the state file {path} has format and Moto version {found},"
            f" this program {(FORMAT, moto.__version__)}"
        )
    _take_over(payload, world)
    return True


def _payload(world: World) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "moto": moto.__version__,
        "ec2": _contents(ec2_backends),
        "route53": _contents(route53_backends),
        "clock": world.clock.save(),
        "timeline": world.timeline,
        "tokens": world.tokens,
        "unseen": world.unseen,
        "changes": world.changes,
        "version": world.version,
    }


def _contents(backends: Any) -> dict[str, dict[str, Any]]:
    return {account: dict(regions.items()) for account, regions in backends.items()}


def _take_over(payload: dict[str, Any], world: World) -> None:
    for name, backends in (("ec2", ec2_backends), ("route53", route53_backends)):
        for account, regions in payload[name].items():
            for region, backend in regions.items():
                backends[account][region] = backend
    world.clock.restore(payload["clock"])
    world.timeline = payload["timeline"]
    world.tokens = payload["tokens"]
    world.unseen = payload["unseen"]
    world.changes = payload["changes"]
    world.version = payload["version"]
