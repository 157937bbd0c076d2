"""Strict answers about growing volumes and about snapshots."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.models import ec2_backends, elastic_block_store

from . import limits
from .contents import CopyError
from .ec2_volumes import StrictVolumes
from .errors import AwsError, not_found
from .places import Volume, is_true, page

log = logging.getLogger(__name__)

UNFINISHED = ("modifying", "optimizing")
# What EC2 says that a copy of a snapshot is of.
ARBITRARY_VOLUME = "vol-ffffffff"


class StrictStorage(StrictVolumes):
    """Modifications and snapshots as EC2 answers them."""

    def modify_volume(self) -> ActionResult:
        """Begin to modify; the new values count once it is optimizing."""
        volume = self._volume(self._get_param("VolumeId"))
        target = self._target(volume)
        self._check_modifiable(volume, target)
        before = {name: getattr(volume, name) for name in target}
        result = super().modify_volume()
        modification = volume.modifications[-1]
        modification.slipway_target = target
        for name, value in before.items():
            setattr(volume, name, value)
        _complete(modification, before)
        modification.slipway_state = "modifying"
        modification.end_time = None
        modification.slipway_at = self.world.now()
        modification.slipway_mark = uuid.uuid4().hex
        seconds = self.world.settings.volume_modifying_s
        modification.slipway_seconds = seconds + self.world.settings.volume_optimizing_s
        mark = modification.slipway_mark
        self.world.later(seconds, "volume-modifying", self.call.place, volume.id, mark)
        return result

    def describe_volumes_modifications(self) -> ActionResult:
        """The latest modification of each volume."""
        ids = self._get_param("VolumeIds", [])
        for volume_id in ids:
            if not self._volume(volume_id).modifications:
                raise AwsError(
                    "InvalidVolumeModification.NotFound",
                    f"Modification for volume '{volume_id}' does not exist.",
                )
        every = self.ec2_backend.describe_volumes_modifications(
            volume_ids=ids, filters=self._filters_from_querystring()
        )
        latest = {item.volume_id: item for item in every if item is item.volume.modifications[-1]}
        for item in latest.values():
            item.slipway_progress = self._progress(item)
        paged, token = page(latest.values(), lambda item: item.volume_id, self.params, (5, 500))
        return ActionResult({"VolumesModifications": paged, "NextToken": token})

    def create_snapshot(self) -> ActionResult:
        """Begin a snapshot of a volume as it is now."""
        volume = self._volume(self._get_param("VolumeId"))
        if volume.status not in ("available", "in-use"):
            raise AwsError(
                "IncorrectState", f"The volume '{volume.id}' is in the '{volume.status}' state."
            )
        world = self.world
        taken = getattr(volume, "slipway_snapshot_at", None)
        if taken is not None and world.now() - taken < world.settings.snapshot_spacing_s:
            raise AwsError(
                "SnapshotCreationPerVolumeRateExceeded",
                "The maximum per volume CreateSnapshot request rate has been exceeded.",
            )
        snapshot: Any = super().create_snapshot().result
        volume.slipway_snapshot_at = world.now()
        snapshot.slipway_size = volume.size
        self._begin(
            snapshot,
            volume.id,
            lambda contents: contents.take(snapshot.id, volume.id, volume.snapshot_id),
        )
        return ActionResult(snapshot)

    def copy_snapshot(self) -> ActionResult:
        """Begin a copy of a snapshot: of no volume that means anything, with the tags asked for."""
        source = self._copied()
        made: Any = super().copy_snapshot().result
        snapshot = self.ec2_backend.snapshots[made["SnapshotId"]]
        encrypted = source.encrypted or snapshot.encrypted or is_true(self._get_param("Encrypted"))
        snapshot.volume = elastic_block_store.Volume(
            self.ec2_backend, ARBITRARY_VOLUME, source.volume_size, None, encrypted=encrypted
        )
        snapshot.encrypted = encrypted
        self._begin(
            snapshot, source.id, lambda contents: contents.take_again(snapshot.id, source.id)
        )
        return ActionResult(made)

    def describe_snapshots(self) -> ActionResult:
        """Snapshots that describes know of, page by page."""
        ids = self._get_param("SnapshotIds", [])
        self._refuse_unseen(ids)
        for snapshot_id in ids:
            if snapshot_id not in self.ec2_backend.snapshots:
                raise not_found("snap", snapshot_id)
        found = self.ec2_backend.describe_snapshots(
            snapshot_ids=ids, filters=self._filters_from_querystring()
        )
        if "self" in self._get_param("OwnerIds", []):
            found = [item for item in found if item.owner_id == self.current_account]
        seen = [item for item in found if not self.world.concealed(item.id)]
        paged, token = page(seen, lambda item: item.id, self.params, (5, 1000))
        return ActionResult({"Snapshots": paged, "NextToken": token})

    def delete_snapshot(self) -> ActionResult:
        """Delete a snapshot that describes know of."""
        self._refuse_unseen([self._get_param("SnapshotId")])
        result = super().delete_snapshot()
        self.world.forget_contents()
        return result

    def _copied(self) -> Any:
        """The snapshot that a copy is asked for of, in its own region."""
        snapshot_id = self._get_param("SourceSnapshotId")
        self._refuse_unseen([snapshot_id])
        region = self._get_param("SourceRegion")
        source = ec2_backends[self.current_account][region].snapshots.get(snapshot_id)
        if source is None:
            raise not_found("snap", snapshot_id)
        if source.status != "completed":
            raise AwsError("IncorrectState", f"Snapshot is in invalid state - {source.status}")
        return source

    def _begin(self, snapshot: Any, of: str, take: Callable[[Any], None]) -> None:
        """Have it pending, not shown at once, and its bytes taken once the answer is given."""
        world = self.world
        snapshot.status = "pending"
        world.conceal(snapshot.id)
        seconds = world.settings.snapshot_pending_s
        world.later(seconds, "snapshot-pending", self.call.place, snapshot.id, of)
        contents = world.contents
        if contents is not None:
            contents.begin(snapshot.id)
            self.afterwards = lambda: self._keep_content(snapshot, lambda: take(contents))

    def _keep_content(self, snapshot: Any, copy: Callable[[], None]) -> None:
        """Copy what it is of. A snapshot whose copy fails has failed as EC2's do: later."""
        failure = None
        try:
            copy()
        except CopyError as error:
            log.warning("snapshot %s of %s: %s", snapshot.id, snapshot.volume_id, error)
            failure = str(error)
        with self.world.lock:
            if failure is not None:
                self._note_change()
                snapshot.status, snapshot.state_message = "error", failure
                self.world.version += 1
            if snapshot.id not in self.ec2_backend.snapshots:
                # Deleted while it was copied.
                self.world.forget_contents()

    def _target(self, volume: Volume) -> dict[str, Any]:
        """What the volume will have: what is asked for, else what it has, else EC2's choice."""
        size, multi_attach = self._number("Size"), self._get_param("MultiAttachEnabled")
        iops, throughput = self._number("Iops"), self._number("Throughput")
        kind = self._get_param("VolumeType") or volume.volume_type
        limits.check_kind(kind, iops, throughput)
        if kind == volume.volume_type:
            iops = volume.iops if iops is None else iops
            throughput = volume.throughput if throughput is None else throughput
        iops, throughput = limits.completed(kind, iops, throughput)
        return {
            "size": volume.size if size is None else size,
            "volume_type": kind,
            "iops": iops,
            "throughput": throughput,
            "multi_attach_enabled": volume.multi_attach_enabled or multi_attach,
        }

    def _check_modifiable(self, volume: Volume, target: dict[str, Any]) -> None:
        if volume.status not in ("available", "in-use"):
            raise AwsError(
                "IncorrectState", f"The volume '{volume.id}' is in the '{volume.status}' state."
            )
        if volume.modifications and volume.modifications[-1].modification_state in UNFINISHED:
            raise AwsError(
                "IncorrectModificationState",
                f"Volume {volume.id} is currently in the"
                f" '{volume.modifications[-1].modification_state}' state of a modification.",
            )
        if target["size"] < volume.size:
            raise AwsError(
                "InvalidParameterValue",
                f"New size cannot be smaller than existing size ({volume.size} GiB).",
            )
        limits.check(target["volume_type"], target["size"], target["iops"], target["throughput"])
        self._check_modification_rate(volume)

    def _progress(self, modification: Any) -> int:
        """How far it is in percent: evenly over its time, and at 99 for as long as it is late."""
        if modification.modification_state not in UNFINISHED:
            return 100
        seconds = getattr(modification, "slipway_seconds", 0.0)
        passed = self.world.now() - modification.slipway_at
        return min(99, int(100 * passed / seconds)) if seconds > 0 else 99

    def _check_modification_rate(self, volume: Volume) -> None:
        settings, now = self.world.settings, self.world.now()
        since = now - settings.modification_window_s
        recent = [item for item in volume.modifications if item.slipway_at > since]
        if len(recent) >= settings.modifications_per_window:
            raise AwsError(
                "VolumeModificationRateExceeded",
                "You've reached the maximum modification rate per volume limit."
                f" At most {settings.modifications_per_window} in 24 hours.",
            )


def _complete(modification: Any, before: dict[str, Any]) -> None:
    """Moto names only what changes; EC2 names original and target of everything."""
    for name, value in before.items():
        setattr(modification, f"original_{name}", value)
        setattr(modification, f"target_{name}", modification.slipway_target[name])
