"""Token buckets with AWS's published figures.

EC2 gives every action of an (account, region) a bucket of requests, and some
actions a second one of resources. Route 53 gives an account one bucket, however
many regions call. The figures are AWS's defaults; quotas differ by account, so
``throttle_factor`` scales them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rate:
    """A bucket's size and how many tokens come back in a second."""

    burst: float
    per_second: float


READ = Rate(100, 20)
READ_EVERYTHING = Rate(50, 10)
WRITE = Rate(50, 5)
ROUTE53 = Rate(50, 10)

# Actions with figures of their own.
BY_ACTION = {
    "AssociateIamInstanceProfile": Rate(100, 5),
    "CopyImage": Rate(100, 1),
    "CreateNetworkInterface": Rate(100, 5),
    "CreateSnapshot": Rate(100, 5),
    "CreateSnapshots": Rate(100, 5),
    "CreateTags": Rate(100, 10),
    "CreateVolume": Rate(100, 5),
    "DeleteSnapshot": Rate(100, 5),
    "DeleteTags": Rate(100, 10),
    "DeleteVolume": Rate(100, 5),
    "RunInstances": Rate(5, 2),
    "StartInstances": Rate(5, 2),
    "TerminateInstances": Rate(100, 5),
}

# Actions that also pay for each resource they touch.
BY_RESOURCE = {
    "RunInstances": Rate(1000, 2),
    "StartInstances": Rate(1000, 2),
    "StopInstances": Rate(1000, 20),
    "TerminateInstances": Rate(1000, 20),
}

# Describes that cost more when they ask for everything at once.
COSTLY_WHEN_UNFILTERED = {
    "DescribeInstances",
    "DescribeInstanceStatus",
    "DescribeNetworkInterfaces",
    "DescribeSecurityGroups",
    "DescribeSnapshots",
    "DescribeTags",
    "DescribeVolumes",
}


@dataclass
class _Bucket:
    tokens: float
    filled_at: float


class Throttle:
    """All buckets. Not safe for threads: called under the world's lock."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, ...], _Bucket] = {}

    def admits(self, call: Any, now: float, factor: float) -> bool:
        """Take the call's tokens, or none and refuse it.

        ``call`` is a :class:`slipway_aws.calls.Call`.
        """
        if factor <= 0:
            return True
        wanted = _wanted(call)
        buckets = [self._bucket(key, rate, now, factor) for key, rate, _ in wanted]
        if any(bucket.tokens < cost for bucket, (_, _, cost) in zip(buckets, wanted, strict=True)):
            return False
        for bucket, (_, _, cost) in zip(buckets, wanted, strict=True):
            bucket.tokens -= cost
        return True

    def reset(self) -> None:
        """Fill every bucket."""
        self._buckets.clear()

    def _bucket(self, key: tuple[str, ...], rate: Rate, now: float, factor: float) -> _Bucket:
        size = rate.burst * factor
        bucket = self._buckets.setdefault(key, _Bucket(size, now))
        gained = max(0.0, now - bucket.filled_at) * rate.per_second * factor
        bucket.tokens, bucket.filled_at = min(size, bucket.tokens + gained), now
        return bucket


def _wanted(call: Any) -> list[tuple[tuple[str, ...], Rate, float]]:
    if call.service == "route53":
        return [(("route53", call.account), ROUTE53, 1.0)]
    place = ("ec2", call.account, call.region)
    request = _request_rate(call)
    wanted: list[tuple[tuple[str, ...], Rate, float]] = [
        ((*place, call.action, request[0]), request[1], 1.0)
    ]
    if call.action in BY_RESOURCE:
        key = (*place, call.action, "resources")
        wanted.append((key, BY_RESOURCE[call.action], float(_resources(call))))
    return wanted


def _request_rate(call: Any) -> tuple[str, Rate]:
    if call.action in BY_ACTION:
        return "requests", BY_ACTION[call.action]
    if call.mutating:
        return "requests", WRITE
    if call.action in COSTLY_WHEN_UNFILTERED and not _narrowed(call.params):
        return "everything", READ_EVERYTHING
    return "requests", READ


def _narrowed(params: dict[str, Any]) -> bool:
    return any(key not in ("DryRun", "IncludeAllInstances") for key in params)


def _resources(call: Any) -> int:
    if call.action == "RunInstances":
        return int(call.params.get("MinCount", 1))
    return max(1, len(call.params.get("InstanceIds", [])))
