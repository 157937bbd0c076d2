"""Machines and volumes as the control API shows them."""

from __future__ import annotations

import base64
from typing import Any

from .places import Instance, Volume


def machine(instance: Instance) -> dict[str, Any]:
    """A machine, with the flags that only the sandbox knows."""
    return {
        "instance_id": instance.id,
        "account": instance.owner_id,
        "region": instance.region_name,
        "zone": instance.placement.zone,
        "state": instance.state,
        "instance_type": instance.instance_type,
        "image_id": instance.image_id,
        "subnet_id": instance.subnet_id,
        "private_ip": instance.private_ip if instance.nics else None,
        "isolated": getattr(instance, "slipway_isolated", False),
        "impaired": getattr(instance, "slipway_impaired", False),
        "user_data": _text(instance.user_data),
        "tags": {tag["key"]: tag["value"] for tag in instance.get_tags()},
    }


def _text(user_data: Any) -> str | None:
    if user_data is None:
        return None
    return base64.b64decode(str(user_data)).decode("utf-8", errors="replace")


def disk(volume: Volume, region: str) -> dict[str, Any]:
    """A volume and who has it."""
    attachment = volume.attachment
    return {
        "volume_id": volume.id,
        "region": region,
        "zone": volume.zone.name if volume.zone else None,
        "state": volume.status,
        "size_gib": volume.size,
        "attached_to": attachment.instance.id if attachment else None,
        "attachment": attachment.status if attachment else None,
        "device": attachment.device if attachment else None,
        "tags": {tag["key"]: tag["value"] for tag in volume.get_tags()},
    }
