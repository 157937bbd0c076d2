"""Strict answers about volumes: create, attach, detach, delete, describe."""

from __future__ import annotations

import uuid
from typing import Any

from moto.core.responses import ActionResult, EmptyResult

from . import limits
from .ec2_instances import StrictInstances
from .errors import AwsError, not_found
from .places import Instance, Volume, VolumeAttachment, is_true, page


class StrictVolumes(StrictInstances):
    """Volumes as EC2 answers them."""

    def create_volume(self) -> ActionResult:
        """Create, unless the client token has created before."""
        world = self.world
        volume: Any = world.tokens.recall(self.call, world.now(), world.settings.token_memory_s)
        if volume is None:
            self._check_zone()
            self._check_source()
            self._check_new()
            volume = super().create_volume().result
            volume.slipway_state = "creating"
            world.conceal(volume.id)
            seconds = world.settings.volume_creating_s
            world.later(seconds, "volume-creating", self.call.place, volume.id)
            world.tokens.remember(self.call, world.now(), volume)
        elif volume.id not in self.ec2_backend.volumes:
            raise AwsError(
                "IdempotentParameterMismatch",
                "The client token you have provided is associated with a resource that is already"
                " deleted. Please use a different client token.",
            )
        return ActionResult(volume)

    def describe_volumes(self) -> ActionResult:
        """Volumes that describes know of, page by page."""
        ids = self._get_param("VolumeIds", [])
        self._refuse_unseen(ids)
        for volume_id in ids:
            if volume_id not in self.ec2_backend.volumes:
                raise not_found("vol", volume_id)
        found = self.ec2_backend.describe_volumes(
            volume_ids=ids, filters=self._filters_from_querystring()
        )
        seen = [volume for volume in found if not self.world.concealed(volume.id)]
        paged, token = page(seen, lambda volume: volume.id, self.params, (5, 1000))
        return ActionResult({"Volumes": paged, "NextToken": token})

    def delete_volume(self) -> ActionResult:
        """Begin to delete a volume that nothing uses."""
        volume = self._volume(self._get_param("VolumeId"))
        if volume.attachment:
            raise AwsError(
                "VolumeInUse",
                f"Volume {volume.id} is currently attached to {volume.attachment.instance.id}",
            )
        if volume.status == "deleting":
            raise not_found("vol", volume.id)
        if volume.status != "available":
            raise _wrong_state(volume)
        volume.slipway_state = "deleting"
        seconds = self.world.settings.volume_deleting_s
        self.world.later(seconds, "volume-deleting", self.call.place, volume.id)
        return EmptyResult()

    def attach_volume(self) -> ActionResult:
        """Begin to attach a free volume to a machine of its own zone."""
        volume = self._volume(self._get_param("VolumeId"))
        instance = self._instance(self._get_param("InstanceId"))
        device = self._get_param("Device")
        _check_attachable(volume, instance, device)
        attachment = self.ec2_backend.attach_volume(volume.id, instance.id, device)
        attachment.slipway_mark = uuid.uuid4().hex
        set_attachment(attachment, "attaching")
        self.world.later(
            self.world.settings.volume_attaching_s,
            "volume-attaching",
            self.call.place,
            volume.id,
            attachment.slipway_mark,
        )
        return ActionResult(_answer(attachment))

    def detach_volume(self) -> ActionResult:
        """Begin to detach; asking again while it detaches changes nothing."""
        volume = self._volume(self._get_param("VolumeId"))
        attachment = self._attachment(volume)
        if attachment.status != "detaching":
            self._begin_detach(attachment, forced=is_true(self._get_param("Force")))
        elif is_true(self._get_param("Force")):
            attachment.slipway_forced = True
        return ActionResult(_answer(attachment))

    def _begin_detach(self, attachment: VolumeAttachment, forced: bool) -> None:
        attachment.slipway_mark = uuid.uuid4().hex
        attachment.slipway_forced = forced
        set_attachment(attachment, "detaching")
        self.world.later(
            self.world.settings.volume_detaching_s,
            "volume-detaching",
            self.call.place,
            attachment.volume.id,
            attachment.slipway_mark,
        )

    def _attachment(self, volume: Volume) -> VolumeAttachment:
        attachment = volume.attachment
        if attachment is None:
            raise AwsError(
                "IncorrectState",
                f"Volume '{volume.id}' is in the '{volume.status}' state.",
            )
        instance_id, device = self._get_param("InstanceId"), self._get_param("Device")
        if instance_id and self.ec2_backend.get_instance_by_id(instance_id) is None:
            raise not_found("i", instance_id)
        if instance_id not in (None, attachment.instance.id) or device not in (
            None,
            attachment.device,
        ):
            raise AwsError(
                "InvalidAttachment.NotFound",
                f"The volume '{volume.id}' is not attached to instance"
                f" '{instance_id or attachment.instance.id}' as device '{device}'.",
            )
        return attachment

    def _volume(self, volume_id: str) -> Volume:
        self._refuse_unseen([volume_id])
        volume = self.ec2_backend.volumes.get(volume_id)
        if volume is None:
            raise not_found("vol", volume_id)
        return volume

    def _check_zone(self) -> None:
        zone = self._get_param("AvailabilityZone")
        if self.ec2_backend.get_zone_by_name(zone) is None:
            raise AwsError("InvalidZone.NotFound", f"The zone '{zone}' does not exist.")

    def _check_source(self) -> None:
        snapshot_id = self._get_param("SnapshotId")
        size = self._number("Size")
        if not snapshot_id:
            return
        self._refuse_unseen([snapshot_id])
        snapshot = self.ec2_backend.snapshots.get(snapshot_id)
        if snapshot is None:
            raise not_found("snap", snapshot_id)
        if snapshot.status != "completed":
            raise AwsError("IncorrectState", f"Snapshot is in invalid state - {snapshot.status}")
        if size is not None and size < snapshot.volume_size:
            raise AwsError(
                "InvalidParameterValue",
                f"The volume size is invalid for snapshot '{snapshot_id}':"
                f" at least {snapshot.volume_size} GiB.",
            )

    def _check_new(self) -> None:
        size, snapshot_id = self._number("Size"), self._get_param("SnapshotId")
        if size is None and snapshot_id:
            size = self.ec2_backend.snapshots[snapshot_id].volume_size
        kind = self._get_param("VolumeType") or "gp2"
        limits.check_new(kind, size, self._number("Iops"), self._number("Throughput"))

    def _number(self, name: str) -> int | None:
        value = self._get_param(name)
        return None if value is None else int(value)


def set_attachment(attachment: VolumeAttachment, status: str) -> None:
    """Put an attachment into a state, on the volume's side and the instance's."""
    attachment.status = status
    device = attachment.instance.block_device_mapping.get(attachment.device)
    if device is not None:
        device.status = status


def _check_attachable(volume: Volume, instance: Instance, device: str | None) -> None:
    if volume.attachment:
        raise AwsError("VolumeInUse", f"{volume.id} is already attached to an instance")
    if volume.status != "available":
        raise AwsError("IncorrectState", f"{volume.id} is not 'available'.")
    if volume.zone.name != instance.placement.zone:
        raise AwsError(
            "InvalidVolume.ZoneMismatch",
            f"The volume '{volume.id}' is not in the same availability zone as"
            f" instance '{instance.id}'",
        )
    if instance.state not in ("running", "stopped"):
        raise AwsError("IncorrectState", f"Instance '{instance.id}' is not 'running'.")
    if not device:
        raise AwsError("MissingParameter", "The request must contain the parameter device")
    if device in instance.block_device_mapping:
        raise AwsError(
            "InvalidParameterValue",
            f"Invalid value '{device}' for unixDevice. Attachment point {device} is already in use",
        )


def _wrong_state(volume: Volume) -> AwsError:
    return AwsError(
        "IncorrectState", f"The volume '{volume.id}' is in the '{volume.status}' state."
    )


def _answer(attachment: VolumeAttachment) -> dict[str, Any]:
    return {
        "VolumeId": attachment.volume.id,
        "InstanceId": attachment.instance.id,
        "Device": attachment.device,
        "State": attachment.status,
        "AttachTime": attachment.attach_time,
    }
