"""Makes sure that a region has a network, a hosted zone and an image.

Everything is found again by its tags, its addresses or its name, so it can be
run at any time and against plain Moto too.
"""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass
from typing import Any

STACK_TAG = "slipway.sandbox/stack"
IMAGE_NAME = "al2023-ami-2023*"
IMAGE_ARCHITECTURE = "x86_64"


class BootstrapError(Exception):
    """A region cannot be made ready."""


@dataclass
class Bootstrap:
    """What is wanted of a region."""

    endpoint: str
    region: str
    stack: str
    cidr: str
    dns_suffix: str
    zones: list[str]
    timeout_s: float = 30.0


def bootstrap(wanted: Bootstrap) -> dict[str, Any]:
    """Make it so, and tell the ids."""
    # Slow to import, and of no use to the server.
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    session = boto3.Session(
        aws_access_key_id="sandbox", aws_secret_access_key="sandbox", region_name=wanted.region
    )
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 8},
        connect_timeout=2,
        read_timeout=20,
        proxies={},
    )
    ec2 = session.client("ec2", endpoint_url=wanted.endpoint, config=config)
    route53 = session.client("route53", endpoint_url=wanted.endpoint, config=config)
    until = time.monotonic() + wanted.timeout_s
    while True:
        try:
            return _ensure(wanted, ec2, route53)
        except (BotoCoreError, ClientError) as error:
            if time.monotonic() >= until:
                raise BootstrapError(f"cannot prepare {wanted.region}: {error}") from error
            time.sleep(0.3)


def _ensure(wanted: Bootstrap, ec2: Any, route53: Any) -> dict[str, Any]:
    vpc_id = _ensure_vpc(wanted, ec2)
    return {
        "vpc_id": vpc_id,
        "node_image": _find_image(ec2),
        "hosted_zone_id": _ensure_hosted_zone(wanted, route53),
        "zones": _ensure_subnets(wanted, ec2, vpc_id),
    }


def _ensure_vpc(wanted: Bootstrap, ec2: Any) -> str:
    filters = [
        {"Name": "cidr-block-association.cidr-block", "Values": [wanted.cidr]},
        {"Name": f"tag:{STACK_TAG}", "Values": [wanted.stack]},
    ]
    found = ec2.describe_vpcs(Filters=filters)["Vpcs"]
    if len(found) > 1:
        ids = ", ".join(vpc["VpcId"] for vpc in found)
        raise BootstrapError(f"more than one network of stack {wanted.stack}: {ids}")
    if found:
        return str(found[0]["VpcId"])
    made = ec2.create_vpc(
        CidrBlock=wanted.cidr, TagSpecifications=_tags(wanted, "vpc", wanted.region)
    )
    return str(made["Vpc"]["VpcId"])


def _ensure_subnets(wanted: Bootstrap, ec2: Any, vpc_id: str) -> dict[str, str]:
    network = ipaddress.ip_network(wanted.cidr)
    extra_bits = (len(wanted.zones) - 1).bit_length()
    parts = list(network.subnets(prefixlen_diff=extra_bits))
    filters = [{"Name": "vpc-id", "Values": [vpc_id]}]
    found = {
        (subnet["AvailabilityZone"], subnet["CidrBlock"]): subnet["SubnetId"]
        for subnet in ec2.describe_subnets(Filters=filters)["Subnets"]
    }
    subnets = {}
    for letter, part in zip(wanted.zones, parts, strict=False):
        zone = f"{wanted.region}{letter}"
        subnet_id = found.get((zone, str(part)))
        if subnet_id is None:
            made = ec2.create_subnet(
                VpcId=vpc_id,
                CidrBlock=str(part),
                AvailabilityZone=zone,
                TagSpecifications=_tags(wanted, "subnet", zone),
            )
            subnet_id = made["Subnet"]["SubnetId"]
        subnets[zone] = subnet_id
    return subnets


def _ensure_hosted_zone(wanted: Bootstrap, route53: Any) -> str:
    name = wanted.dns_suffix.rstrip(".") + "."
    listed = route53.list_hosted_zones_by_name(DNSName=name)["HostedZones"]
    for zone in listed:
        if zone["Name"] == name:
            return str(zone["Id"]).rsplit("/", 1)[-1]
    made = route53.create_hosted_zone(
        Name=name,
        CallerReference=f"{wanted.stack}/{name}",
        HostedZoneConfig={"Comment": f"stack {wanted.stack}"},
    )
    return str(made["HostedZone"]["Id"]).rsplit("/", 1)[-1]


def _find_image(ec2: Any) -> str:
    images = ec2.describe_images(
        Owners=["amazon"],
        Filters=[
            {"Name": "architecture", "Values": [IMAGE_ARCHITECTURE]},
            {"Name": "state", "Values": ["available"]},
        ],
    )["Images"]
    prefix = IMAGE_NAME.rstrip("*")
    known = [image for image in images if image.get("Name", "").startswith(prefix)]
    usable = known or [image for image in images if image.get("Platform") != "windows"]
    if not usable:
        raise BootstrapError("the endpoint knows no image for a node")
    newest = max(usable, key=lambda image: (image["CreationDate"], image["ImageId"]))
    return str(newest["ImageId"])


def _tags(wanted: Bootstrap, kind: str, name: str) -> list[dict[str, Any]]:
    tags = [
        {"Key": "Name", "Value": f"slipway-{wanted.stack}-{name}"},
        {"Key": STACK_TAG, "Value": wanted.stack},
    ]
    return [{"ResourceType": kind, "Tags": tags}]
