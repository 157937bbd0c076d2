"""Client tokens: the same request twice is one request.

AWS remembers a token with the parameters it came with. A retry gets the answer
of the first call, brought up to date (a machine may have become running, or be
gone); other parameters with the same token are refused. Failed calls leave no
token behind.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from .errors import AwsError

LONGEST_TOKEN = 64
# Not part of what a token stands for.
NOT_COMPARED = ("ClientToken", "DryRun")


@dataclass
class Remembered:
    """What a token stands for: its parameters and the resource it made."""

    digest: str
    at: float
    made: Any


class Tokens:
    """Client tokens by (account, region, action). Called under the world's lock."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str, str], Remembered] = {}

    def recall(self, call: Any, now: float, memory: float) -> Any | None:
        """What the call's token made before, or None if it is new."""
        token = call.params.get("ClientToken")
        if not token:
            return None
        if len(token) > LONGEST_TOKEN or not token.isascii():
            raise AwsError("InvalidParameterValue", f"Client token '{token}' is too long.")
        found = self._known.get(_key(call, token))
        if found is None or now - found.at >= memory:
            return None
        if found.digest != _digest(call.params):
            raise AwsError(
                "IdempotentParameterMismatch",
                "Arguments on this idempotent request are inconsistent with arguments"
                " used in previous request(s).",
            )
        return found.made

    def remember(self, call: Any, now: float, made: Any) -> None:
        """Let the call's token stand for what it made."""
        token = call.params.get("ClientToken")
        if token:
            self._known[_key(call, token)] = Remembered(_digest(call.params), now, made)

    def forget_old(self, now: float, memory: float) -> None:
        """Drop what AWS would no longer remember."""
        old = [key for key, found in self._known.items() if now - found.at >= memory]
        for key in old:
            del self._known[key]


def _key(call: Any, token: str) -> tuple[str, str, str, str]:
    return (call.account, call.region, call.action, token)


def _digest(params: dict[str, Any]) -> str:
    compared = {key: value for key, value in params.items() if key not in NOT_COMPARED}
    text = json.dumps(compared, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
