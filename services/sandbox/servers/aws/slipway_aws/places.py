"""Small helpers that find things in Moto's EC2 backend and page through them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from moto.ec2.models.instances import InstanceState

from .errors import AwsError

# Moto's objects, on which the layer keeps attributes of its own (``slipway_…``).
Instance: TypeAlias = Any
Volume: TypeAlias = Any
VolumeAttachment: TypeAlias = Any

STATE_CODES = {
    "pending": 0,
    "running": 16,
    "shutting-down": 32,
    "terminated": 48,
    "stopping": 64,
    "stopped": 80,
}


def set_state(instance: Instance, name: str) -> None:
    """Put an instance into a state."""
    instance._state = InstanceState(name, STATE_CODES[name])


def state_of(instance: Instance) -> dict[str, Any]:
    """An instance's state as EC2 answers it."""
    return {"Name": instance.state, "Code": STATE_CODES[instance.state]}


def is_true(value: Any) -> bool:
    """A boolean parameter, however it was written."""
    return value is True or str(value).lower() == "true"


def page(
    items: Iterable[Any],
    key: Callable[[Any], str],
    params: dict[str, Any],
    allowed: tuple[int, int],
) -> tuple[list[Any], str | None]:
    """One page of ``items`` in the order of their keys, and the next token.

    The token names the last key given, so that pages stay whole while things
    come and go between the calls.
    """
    ordered = sorted(items, key=key)
    if token := params.get("NextToken"):
        after = _last_key(token)
        ordered = [item for item in ordered if key(item) > after]
    size = params.get("MaxResults")
    if size is None:
        return ordered, None
    size = int(size)
    if size < allowed[0]:
        raise AwsError(
            "InvalidParameterValue",
            f"Value ( {size} ) for parameter maxResults is invalid."
            f" Expecting a value greater than {allowed[0] - 1}.",
        )
    size = min(size, allowed[1])
    if len(ordered) <= size:
        return ordered, None
    return ordered[:size], _token(key(ordered[size - 1]))


def _token(last_key: str) -> str:
    return base64.urlsafe_b64encode(last_key.encode()).decode()


def _last_key(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token.encode()).decode()
    except (binascii.Error, UnicodeError) as error:
        raise AwsError("InvalidNextToken", f"The token '{token}' is invalid.") from error
