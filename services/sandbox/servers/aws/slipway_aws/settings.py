"""Every number of the strict layer that a test or a user may want to change.

All times are seconds of the endpoint's own clock (see ``clock``), so one time
scale speeds everything up together. The defaults keep AWS's order of events
with durations short enough for a person who is watching.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class Settings:
    """The numbers in force. Changed only through :meth:`change`."""

    instance_pending_s: float = 1.5
    instance_stopping_s: float = 1.0
    instance_shutting_down_s: float = 1.5
    # AWS shows a terminated instance for about an hour.
    terminated_visible_s: float = 3600.0
    volume_creating_s: float = 0.5
    volume_attaching_s: float = 0.8
    volume_detaching_s: float = 0.8
    volume_deleting_s: float = 0.3
    volume_modifying_s: float = 0.7
    volume_optimizing_s: float = 2.0
    snapshot_pending_s: float = 1.5
    # Smallest time between two snapshots of one volume; AWS says 15 s.
    snapshot_spacing_s: float = 1.0
    # A change of records is PENDING this long before it is INSYNC.
    change_insync_s: float = 1.5
    # A hosted zone refuses the next change this long after accepting one.
    zone_busy_s: float = 0.05
    # New instances, volumes, snapshots and groups answer NotFound this long.
    new_id_lag_s: float = 0.2
    # EC2 describes answer from this long ago; 0 is always current.
    describe_lag_s: float = 0.0
    # How long a client token is remembered.
    token_memory_s: float = 86_400.0
    modification_window_s: float = 86_400.0
    modifications_per_window: int = 4
    # Multiplies AWS's bucket sizes and rates; 0 switches throttling off.
    throttle_factor: float = 1.0
    # How many of the latest calls that only read the journal keeps, and of all others as many.
    journal_length: int = 5_000

    def change(self, values: dict[str, Any]) -> None:
        """Set the named numbers, or none of them if one is not acceptable."""
        known = {field.name: type(getattr(self, field.name)) for field in fields(self)}
        accepted: dict[str, Any] = {}
        for name, value in values.items():
            if name not in known:
                raise ValueError(f"unknown setting {name!r}; known: {', '.join(sorted(known))}")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                raise ValueError(f"setting {name!r} must be a number of at least 0")
            accepted[name] = known[name](value)
        for name, value in accepted.items():
            setattr(self, name, value)

    def as_dict(self) -> dict[str, Any]:
        """The numbers in force, by name."""
        return asdict(self)


def parse_assignment(text: str) -> tuple[str, float]:
    """Read ``name=number`` as given on the command line."""
    name, separator, number = text.partition("=")
    if not separator:
        raise ValueError(f"{text!r} is not name=number")
    return name.strip(), float(number)
