"""Changes to Moto's EC2 models that no subclass can make.

Each patch replaces one property or method of a class by one that reads a state
which the strict layer has put on the object (attributes ``slipway_…``). Objects
without such a state behave as Moto means them to, but for which address is next
and how rules of a security group are counted.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from moto.ec2.models import core, elastic_block_store, instances, security_groups, subnets

from . import limits
from .errors import AwsError

# AWS keeps the first four addresses of a subnet and the last one.
FIRST_USABLE = 4


def install() -> None:
    """Patch Moto. Doing it twice does no harm."""
    tagged: Any = core.TaggedEC2Resource
    tagged.get_tags = _get_tags
    _install_volumes()
    _install_instances()
    subnet: Any = subnets.Subnet
    subnet.get_available_subnet_ip = _next_address
    groups: Any = security_groups.SecurityGroupBackend
    groups._verify_group_will_respect_rule_count_limit = _check_rules


def _get_tags(self: Any) -> list[dict[str, str]]:
    """Tags of one resource by a look-up; Moto walks over those of all resources."""
    kind = self.id.rsplit("-", 1)[0]
    return [
        {"resource_id": self.id, "key": key, "value": value, "resource_type": kind}
        for key, value in self.ec2_backend.tags.get(self.id, {}).items()
    ]


def _install_volumes() -> None:
    volume: Any = elastic_block_store.Volume
    volume.status = property(_volume_status)
    attachment: Any = elastic_block_store.VolumeAttachment
    attachment.delete_on_termination = property(_deleted_on_termination)
    modification: Any = elastic_block_store.VolumeModification
    modification.modification_state = property(
        lambda self: getattr(self, "slipway_state", "completed")
    )
    modification.progress = property(_modification_progress)
    modification.get_filter_value = _modification_filter_value
    snapshot: Any = elastic_block_store.Snapshot
    snapshot.progress = property(lambda self: "100%" if self.status == "completed" else "0%")
    snapshot.volume_size = property(
        lambda self: getattr(self, "slipway_size", None) or self.volume.size
    )


def _volume_status(self: Any) -> str:
    state = getattr(self, "slipway_state", None)
    return state or ("in-use" if self.attachment else "available")


def _deleted_on_termination(self: Any) -> bool:
    device = self.instance.block_device_mapping.get(self.device)
    return bool(device is not None and device.delete_on_termination)


def _modification_progress(self: Any) -> int:
    default = 100 if self.modification_state == "completed" else 0
    return getattr(self, "slipway_progress", default)


def _modification_filter_value(self: Any, filter_name: str) -> Any:
    name = {"volume-id": "volume_id"}.get(filter_name, filter_name.replace("-", "_"))
    return getattr(self, name, None)


def _install_instances() -> None:
    instance: Any = instances.Instance
    for name in ("private_ip", "private_ip_address"):
        setattr(instance, name, property(_private_ip))
    for name in ("public_ip", "public_ip_address"):
        setattr(instance, name, property(_public_ip))
    original_dns = instance.private_dns_name.fget
    instance.private_dns_name = property(lambda self: original_dns(self) if self.nics else "")
    for name in ("instance_status", "system_status"):
        healthy = getattr(instance, name).fget
        setattr(instance, name, property(_status_check(healthy)))


def _private_ip(self: Any) -> str | None:
    return self.nics[0].private_ip_address if self.nics else None


def _public_ip(self: Any) -> str | None:
    return self.nics[0].public_ip if self.nics else None


def _status_check(healthy: Any) -> Any:
    def check(self: Any) -> dict[str, Any]:
        if self.state == "running" and getattr(self, "slipway_impaired", False):
            failed = {"Name": "reachability", "Status": "failed"}
            return {"Details": [failed], "Status": "impaired"}
        return healthy(self)

    return check


def source(rule: Any) -> dict[str, Any]:
    """Whom a rule of a security group is for, as EC2 is asked for it."""
    return rule.ip_range or rule.source_group or {"PrefixListId": rule.prefix_list_id}


def _check_rules(
    _self: Any,
    group: Any,
    _count: int,
    ranges: list[dict[str, Any]] | None,
    groups: list[dict[str, Any]] | None = None,
    egress: bool = False,
) -> None:
    """Refuse too many rules, by family of addresses; Moto counts all of them together."""
    held = group.egress_rules if egress else group.ingress_rules
    limits.check_rules([*map(source, held), *(ranges or []), *(groups or [])])


def _next_address(self: Any, instance: Any) -> str:
    """The next free address, going round the subnet.

    Moto counts with a generator, which a state file cannot hold, and hands out
    a freed address first; going round keeps an old address unused for longest.
    """
    usable = self.cidr.num_addresses - FIRST_USABLE - 1
    start = getattr(self, "slipway_cursor", 0)
    for step in range(max(0, usable)):
        offset = (start + step) % usable
        address = str(self.cidr.network_address + FIRST_USABLE + offset)
        if address in self._subnet_ips or ipaddress.ip_address(address) in self._reserved_ips:
            continue
        self.slipway_cursor = offset + 1
        self._unused_ips.discard(address)
        self._subnet_ips[address] = instance
        return address
    raise AwsError(
        "InsufficientFreeAddressesInSubnet",
        f"The specified subnet '{self.id}' does not have enough free addresses.",
    )
