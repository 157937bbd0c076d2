"""What EBS allows of each type of volume, EC2 of tags and rules, and what it says of anything else.

Bounds are those of the API reference of CreateVolume and ModifyVolume, ratios those of the EBS
user guide. Codes and texts of the ratios are what EC2 has been seen to answer. Of what lies below
a bound of gp3 the reference only says that it is not valid; EC2 may raise it instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import AwsError

# What a volume gets that becomes one of a type that has it, if nobody asks for anything else.
IOPS, THROUGHPUT = 3_000, 125
# How much of it each operation a second allows.
THROUGHPUT_PER_IOPS = 0.25
# How long keys and values of tags may be, in characters, and how many tags a resource may have.
LONGEST_KEY, LONGEST_VALUE, MOST_TAGS = 128, 256, 50
RESERVED = "aws:"
# How many rules for one family of addresses a security group may have, each way.
MOST_RULES = 60


@dataclass(frozen=True)
class Limits:
    """Least and greatest numbers of one type of volume; None where nothing can be chosen."""

    size: tuple[int, int]
    iops: tuple[int, int] | None = None
    iops_per_gib: int = 0
    throughput: tuple[int, int] | None = None
    # Without a default, operations have to be asked for.
    needs_iops: bool = False


KINDS = {
    "standard": Limits((1, 1_024)),
    "gp2": Limits((1, 16_384)),
    "gp3": Limits((1, 65_536), (3_000, 80_000), 500, (125, 2_000)),
    "io1": Limits((4, 16_384), (100, 64_000), 50, needs_iops=True),
    "io2": Limits((4, 65_536), (100, 256_000), 1_000, needs_iops=True),
    "st1": Limits((125, 16_384)),
    "sc1": Limits((125, 16_384)),
}


def check_kind(kind: str, iops: int | None, throughput: int | None) -> None:
    """Refuse an unknown type, and numbers that are asked for and that the type does not have."""
    if kind not in KINDS:
        text = f"Unsupported volume type '{kind}' for volume creation."
        raise AwsError("UnknownVolumeType", text)
    for name, asked, allowed in (
        ("iops", iops, KINDS[kind].iops),
        ("throughput", throughput, KINDS[kind].throughput),
    ):
        if asked is not None and allowed is None:
            raise AwsError(
                "InvalidParameterCombination",
                f"The parameter {name} is not supported for {kind} volumes.",
            )


def check_new(kind: str, size: int | None, iops: int | None, throughput: int | None) -> None:
    """Refuse a new volume that cannot be. Without a size there is nothing that it could be."""
    check_kind(kind, iops, throughput)
    if KINDS[kind].needs_iops and iops is None:
        raise AwsError(
            "InvalidParameterCombination",
            f"The parameter iops must be specified for {kind} volumes.",
        )
    if size is not None:
        check(kind, size, *completed(kind, iops, throughput))


def check_tags(tags: dict[str, str | None]) -> None:
    """Refuse tags that no resource may have."""
    for key, value in tags.items():
        if key.lower().startswith(RESERVED):
            text = f"Tag keys starting with '{RESERVED}' are reserved for internal use"
        elif len(key) > LONGEST_KEY:
            text = f"Tag key exceeds the maximum length of {LONGEST_KEY} characters"
        elif len(value or "") > LONGEST_VALUE:
            text = f"Tag value exceeds the maximum length of {LONGEST_VALUE} characters"
        else:
            continue
        raise AwsError("InvalidParameterValue", text)
    if len(tags) > MOST_TAGS:
        raise AwsError(
            "TagLimitExceeded", "The maximum number of Tags for a resource has been reached."
        )


def check_rules(sources: Iterable[Mapping[str, Any]]) -> None:
    """Refuse more rules of a group than it may have, by whom each is for.

    The two families of addresses count apart. Whoever is no range of addresses counts in both;
    a list of prefixes for one, although EC2 counts as many as it may hold.
    """
    known = list(sources)
    for other in ("CidrIpv6", "CidrIp"):
        if sum(other not in found for found in known) > MOST_RULES:
            raise AwsError(
                "RulesPerSecurityGroupLimitExceeded",
                "The maximum number of rules per security group has been reached.",
            )


def completed(
    kind: str, iops: int | None, throughput: int | None
) -> tuple[int | None, int | None]:
    """Operations and throughput of a volume of this type: asked for, EC2's choice, or none."""
    limits = KINDS[kind]
    return (
        _completed(iops, IOPS) if limits.iops else None,
        _completed(throughput, THROUGHPUT) if limits.throughput else None,
    )


def check(kind: str, size: int, iops: int | None, throughput: int | None) -> None:
    """Refuse numbers that are out of bounds for the type, or too many for each other."""
    _check_size(kind, size)
    limits = KINDS[kind]
    if limits.iops is not None and iops is not None:
        _check_iops(kind, size, iops, limits.iops)
    if limits.throughput is not None and iops is not None and throughput is not None:
        _check_throughput(iops, throughput, limits.throughput)


def _completed(asked: int | None, chosen: int) -> int:
    return chosen if asked is None else asked


def _check_size(kind: str, size: int) -> None:
    least, most = KINDS[kind].size
    if size < least:
        raise AwsError(
            "InvalidParameterValue",
            f"The volume size is invalid for {kind} volumes: {size} GiB. {kind} volumes must be"
            f" at least {least} GiB in size. Please specify a volume size above the minimum limit.",
        )
    if size > most:
        raise AwsError(
            "InvalidParameterValue",
            f"Volume of {size}GiB is too large for volume type {kind}; maximum is {most}GiB",
        )


def _check_iops(kind: str, size: int, iops: int, bounds: tuple[int, int]) -> None:
    least, most = bounds
    per_gib = KINDS[kind].iops_per_gib
    # The least is to be had at any size.
    too_dense = iops > max(least, size * per_gib)
    if kind == "io2" and (iops > most or too_dense):
        raise AwsError(
            "InvalidParameterCombination",
            "io2 volumes configured with greater than 64 TiB or 256K IOPS or 1000:1 IOPS:GB ratio"
            " are not supported.",
        )
    _check_bounds("iops", iops, bounds)
    if too_dense:
        raise AwsError(
            "InvalidParameterValue",
            f"Iops to volume size ratio of {iops / size:.6f} is too high; maximum is {per_gib}",
        )


def _check_throughput(iops: int, throughput: int, bounds: tuple[int, int]) -> None:
    _check_bounds("throughput", throughput, bounds)
    if throughput > iops * THROUGHPUT_PER_IOPS:
        raise AwsError(
            "InvalidParameterValue",
            f"Throughput (MiBps) to iops ratio of {throughput / iops:.6f} is too high;"
            f" maximum is {THROUGHPUT_PER_IOPS:.6f} MiBps per iops.",
        )


def _check_bounds(name: str, value: int, bounds: tuple[int, int]) -> None:
    least, most = bounds
    if value < least:
        words = f"too low; minimum is {least}."
    elif value > most:
        words = f"too high; maximum is {most}."
    else:
        return
    raise AwsError("InvalidParameterValue", f"Volume {name} of {value} is {words}")
