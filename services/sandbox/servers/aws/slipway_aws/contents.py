"""What snapshots hold: copies of the directories in which node agents keep disks.

The endpoint only keeps books about disks; their bytes lie with the agents, one
directory for each volume. CreateSnapshot copies that directory, and an agent
fills a new disk from such a copy. A copy appears under the snapshot's id when it
is whole, never before.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

log = logging.getLogger(__name__)

# Names that no snapshot has: copies that are not whole, and what is being removed.
UNFINISHED = ".new-"
REMOVED = ".gone-"
# How often a file may be replaced by another while it is copied.
PASSES = 3

# A database that is copied under its checkpoint goes on working: files come and go.
VANISHED = re.compile(
    r"(cannot (stat|open|access|read symbolic link) )?['\"].*: No such file or directory$"
)
REPLACED = re.compile(r"skipping file .*, as it was replaced while being copied$")


class CopyError(Exception):
    """A disk could not be copied."""


class Contents:
    """The copies of one endpoint."""

    def __init__(self, disks: Iterable[str], directory: Path) -> None:
        """``disks`` are patterns of the directories in which agents keep volumes."""
        self._disks = list(disks)
        self._directory = directory
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        directory.mkdir(parents=True, exist_ok=True)
        for path in directory.iterdir():
            if path.name.startswith((UNFINISHED, REMOVED)):
                _remove_later(path)

    def begin(self, snapshot_id: str) -> None:
        """Note that a copy is on its way. ``take`` ends it."""
        with self._lock:
            self._busy.add(snapshot_id)

    def busy(self, snapshot_id: str) -> bool:
        """Whether a copy is on its way."""
        with self._lock:
            return snapshot_id in self._busy

    def has(self, snapshot_id: str) -> bool:
        """Whether there is a whole copy."""
        return self._path(snapshot_id).is_dir()

    def take(self, snapshot_id: str, volume_id: str, made_from: str | None) -> None:
        """Copy a volume as its disk is now. Slow: not to be called under a lock.

        A volume that was made from a snapshot and has no disk yet holds what that
        snapshot holds; one that was made of nothing holds nothing.
        """

        def source() -> Path | None:
            disk = self.disk(volume_id)
            if disk is None and made_from and self.has(made_from):
                return self._path(made_from)
            return disk

        self._keep(snapshot_id, source)

    def take_again(self, snapshot_id: str, of: str) -> None:
        """Copy what another snapshot holds. Slow as well; fails when that one has gone."""
        self._keep(snapshot_id, lambda: self._path(of))

    def _keep(self, snapshot_id: str, find: Callable[[], Path | None]) -> None:
        temporary = self._directory / f"{UNFINISHED}{snapshot_id}"
        try:
            source = find()
            if source is None:
                temporary.mkdir()
            else:
                copy(source, temporary)
                if not source.is_dir():
                    raise CopyError(f"{source} was removed while it was copied")
            temporary.rename(self._path(snapshot_id))
        except OSError as error:
            raise CopyError(f"cannot keep a copy: {error}") from error
        finally:
            _remove_later(temporary)
            with self._lock:
                self._busy.discard(snapshot_id)

    def disk(self, volume_id: str) -> Path | None:
        """The directory of a volume, if an agent has one."""
        for pattern in self._disks:
            for parent in glob.iglob(pattern):
                path = Path(parent, volume_id)
                if path.is_dir():
                    return path
        return None

    def keep_only(self, needed: set[str]) -> None:
        """Remove the copies of all snapshots but these. What is being made stays."""
        for path in self._directory.iterdir():
            ours = path.name.startswith("snap-") and path.name not in needed
            if ours and not self.busy(path.name):
                _remove_later(path)

    def _path(self, snapshot_id: str) -> Path:
        return self._directory / snapshot_id


def copy(source: Path, target: Path) -> None:
    """Copy a directory with everything below it that does not vanish meanwhile."""
    command = ["cp", "--archive", "--reflink=auto", "--no-target-directory"]
    for _ in range(PASSES):
        answer = subprocess.run(
            [*command, str(source), str(target)],
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        complaints = [line.removeprefix("cp: ") for line in answer.stderr.splitlines()]
        if answer.returncode != 0:
            _refuse_other_than_changes(source, complaints)
        if not any(REPLACED.match(line) for line in complaints):
            return
        # What came instead of a file belongs to the disk as much as the file did.
        command = ["cp", "--archive", "--reflink=auto", "--update", "--no-target-directory"]
    raise CopyError(f"cannot copy {source}: its files are replaced too fast")


def _refuse_other_than_changes(source: Path, complaints: list[str]) -> None:
    other = [line for line in complaints if not (VANISHED.match(line) or REPLACED.match(line))]
    if other or not complaints:
        raise CopyError(f"cannot copy {source}: {'; '.join(other[:3]) or 'cp failed'}")


def _remove_later(path: Path) -> None:
    """Take a directory away at once, and its files when there is time."""
    gone = path.with_name(f"{REMOVED}{uuid.uuid4().hex}")
    try:
        path.rename(gone)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("cannot remove %s: %s", path, error)
        return
    threading.Thread(target=shutil.rmtree, args=(gone, True), daemon=True).start()
