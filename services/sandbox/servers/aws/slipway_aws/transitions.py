"""What a state turns into once its time has come.

Each handler looks at the resource again: it may be gone, or in another state
than the one the transition was made for. The mark tells this occurrence from a
later one of the same resource.
"""

from __future__ import annotations

import json
from typing import Any

from moto.core.utils import utcnow
from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import StateReason

from .ec2_volumes import set_attachment
from .places import Instance, Volume, VolumeAttachment, set_state
from .timeline import Transition
from .world import World


def install(world: World) -> None:
    """Tell the world who handles what."""
    world.handlers.update(
        {
            "instance-pending": _started,
            "instance-stopping": _stopped,
            "instance-shutting-down": _terminated,
            "instance-terminated": _forgotten,
            "volume-creating": _volume_created,
            "volume-deleting": _volume_deleted,
            "volume-attaching": _volume_attached,
            "volume-detaching": _volume_detached,
            "volume-modifying": _volume_modified,
            "volume-optimizing": _volume_optimized,
            "snapshot-pending": _snapshot_completed,
        }
    )


def die(world: World, instance: Instance, how: str) -> None:
    """The machine's hardware fails, whatever its protection says."""
    place = (instance.owner_id, instance.region_name)
    if how == "impair":
        instance.slipway_impaired = True
    elif how == "stop":
        _stop(instance)
    elif how == "terminate":
        _terminate(world, instance, place)
    else:
        raise ValueError("how must be one of terminate, stop, impair")
    if how != "impair":
        code = "Server.InternalError"
        instance.state_reason = StateReason(f"{code}: The host has failed", code)


def _started(world: World, transition: Transition) -> None:
    instance = _instance(transition, "pending")
    if instance is None:
        return
    if (spoilt := world.faults.spoils(transition, _about(instance))) is None:
        set_state(instance, "running")
        return
    # As EC2 does where an account may have no further disk, or not use the key of one: the launch was taken.
    _terminate(world, instance, (transition.account, transition.region))
    code = spoilt.code if "." in spoilt.code else f"Server.{spoilt.code}"
    instance.state_reason = StateReason(f"{code}: {spoilt.message}", code)


def _stopped(world: World, transition: Transition) -> None:
    instance = _instance(transition, "stopping")
    if instance is not None:
        _stop(instance)


def _terminated(world: World, transition: Transition) -> None:
    instance = _instance(transition, "shutting-down")
    if instance is not None:
        _terminate(world, instance, (transition.account, transition.region))


def _forgotten(world: World, transition: Transition) -> None:
    """A terminated instance is shown for an hour, then EC2 knows it no more."""
    backend = _backend(transition)
    for key, reservation in list(backend.reservations.items()):
        ours = any(instance.id == transition.target for instance in reservation.instances)
        if ours and all(instance.state == "terminated" for instance in reservation.instances):
            del backend.reservations[key]
            for instance in reservation.instances:
                backend.tags.pop(instance.id, None)


def _stop(instance: Instance) -> None:
    for nic in instance.nics.values():
        nic.stop()
    set_state(instance, "stopped")
    # Starting again means another host.
    instance.slipway_impaired = False


def _terminate(world: World, instance: Instance, place: tuple[str, str]) -> None:
    subnet = instance.ec2_backend.get_subnet(instance.subnet_id) if instance.nics else None
    reason = instance.state_reason
    instance.terminate()
    instance.state_reason = reason
    for address in instance._private_ips:
        if subnet is not None:
            subnet.del_subnet_ip(address)
    # The addresses are free for others now: Moto would free them once more when
    # the object goes, and EC2 shows none for a terminated machine.
    instance._private_ips = set()
    instance._subnet_id = None
    instance.nics = {}
    instance.slipway_impaired = False
    instance.disable_api_stop = instance.disable_api_termination = False
    world.later(world.settings.terminated_visible_s, "instance-terminated", place, instance.id)


def _volume_created(world: World, transition: Transition) -> None:
    volume = _volume(transition)
    if volume is None or volume.status != "creating":
        return
    if world.faults.spoils(transition, _about(volume)) is None:
        volume.slipway_state = None
    else:
        # As EC2 does where the key may not be used: it says so nowhere.
        _remove(world, transition, volume)


def _volume_deleted(world: World, transition: Transition) -> None:
    volume = _volume(transition)
    if volume is not None and volume.status == "deleting":
        _remove(world, transition, volume)


def _remove(world: World, transition: Transition, volume: Volume) -> None:
    backend = _backend(transition)
    del backend.volumes[volume.id]
    backend.tags.pop(volume.id, None)
    if volume.snapshot_id:
        world.forget_contents()


def _volume_attached(world: World, transition: Transition) -> None:
    attachment = _attachment(transition)
    if attachment is not None and attachment.status == "attaching":
        set_attachment(attachment, "attached")


def _volume_detached(world: World, transition: Transition) -> bool:
    attachment = _attachment(transition)
    if attachment is None or attachment.status != "detaching":
        return False
    instance = attachment.instance
    forced = getattr(attachment, "slipway_forced", False)
    if getattr(instance, "slipway_impaired", False) and not forced:
        # A dead machine never lets go by itself: stop or terminate it first.
        return True
    volume_id, device = attachment.volume.id, attachment.device
    _backend(transition).detach_volume(volume_id, instance.id, device)
    return False


def _volume_modified(world: World, transition: Transition) -> None:
    modification = _modification(transition, "modifying")
    if modification is None:
        return
    if (spoilt := world.faults.spoils(transition, _about(modification.volume))) is not None:
        # It counts as one of the day, and the volume stays as it was.
        modification.slipway_state = "failed"
        modification.status_message, modification.end_time = spoilt.message, utcnow()
        return
    for name, value in modification.slipway_target.items():
        setattr(modification.volume, name, value)
    modification.slipway_state = "optimizing"
    place = (transition.account, transition.region)
    seconds = world.settings.volume_optimizing_s
    world.later(seconds, "volume-optimizing", place, transition.target, transition.mark)


def _volume_optimized(world: World, transition: Transition) -> None:
    modification = _modification(transition, "optimizing")
    if modification is not None:
        modification.slipway_state = "completed"
        modification.end_time = utcnow()


def _snapshot_completed(world: World, transition: Transition) -> bool:
    snapshot = _backend(transition).snapshots.get(transition.target)
    if snapshot is None or snapshot.status != "pending":
        return False
    contents = world.contents
    if contents is not None and contents.busy(snapshot.id):
        return True
    if contents is not None and not contents.has(snapshot.id):
        # Its copy was on the way when the endpoint ended.
        snapshot.status, snapshot.state_message = "error", "The copy was interrupted."
    elif (spoilt := world.faults.spoils(transition)) is not None:
        snapshot.status, snapshot.state_message = "error", spoilt.message
    else:
        snapshot.status = "completed"
    return False


def _about(resource: Any) -> str:
    """What a test may know of a resource before it has an id: its tags."""
    return json.dumps({tag["key"]: tag["value"] for tag in resource.get_tags()})


def _backend(transition: Transition) -> Any:
    return ec2_backends[transition.account][transition.region]


def _instance(transition: Transition, state: str) -> Instance | None:
    instance = _backend(transition).get_instance_by_id(transition.target)
    if instance is None or instance.state != state:
        return None
    return instance if instance.slipway_mark == transition.mark else None


def _volume(transition: Transition) -> Volume | None:
    return _backend(transition).volumes.get(transition.target)


def _attachment(transition: Transition) -> VolumeAttachment | None:
    volume = _volume(transition)
    attachment = volume.attachment if volume is not None else None
    mark = getattr(attachment, "slipway_mark", None)
    return attachment if mark == transition.mark else None


def _modification(transition: Transition, state: str) -> Any | None:
    volume = _volume(transition)
    for modification in volume.modifications if volume is not None else ():
        if getattr(modification, "slipway_mark", None) == transition.mark:
            return modification if modification.modification_state == state else None
    return None
