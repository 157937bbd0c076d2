"""Errors in AWS's own words: code, message, HTTP status."""

from __future__ import annotations

from moto.core.exceptions import ServiceException

# Codes which AWS lists as faults of the server; every other code is a 400.
SERVER_FAULTS = {
    "InternalError": 500,
    "InternalFailure": 500,
    "InsufficientInstanceCapacity": 500,
    "InsufficientHostCapacity": 500,
    "InsufficientCapacity": 500,
    "InsufficientFreeAddressesInSubnet": 400,
    "RequestLimitExceeded": 503,
    "Unavailable": 503,
    "ServiceUnavailable": 503,
}

# Route 53 gives some of its errors a status of their own.
OTHER_STATUS = {
    "NoSuchChange": 404,
    "NoSuchHostedZone": 404,
    "HostedZoneAlreadyExists": 409,
    "UnauthorizedOperation": 403,
    "AuthFailure": 401,
    "SignatureDoesNotMatch": 403,
}


def status_of(code: str) -> int:
    """The HTTP status that belongs to an error code."""
    return SERVER_FAULTS.get(code, OTHER_STATUS.get(code, 400))


class AwsError(ServiceException):
    """An error to answer with. Moto writes it in the protocol of the service."""

    def __init__(self, code: str, message: str, status: int | None = None) -> None:
        super().__init__(code, message)
        self.status = status or status_of(code)


def not_found(kind: str, resource_id: str) -> AwsError:
    """The NotFound error of an EC2 resource kind."""
    code, noun = {
        "i": ("InvalidInstanceID.NotFound", "instance ID"),
        "vol": ("InvalidVolume.NotFound", "volume"),
        "snap": ("InvalidSnapshot.NotFound", "snapshot"),
        "sg": ("InvalidGroup.NotFound", "security group"),
    }[kind]
    return AwsError(code, f"The {noun} '{resource_id}' does not exist")
