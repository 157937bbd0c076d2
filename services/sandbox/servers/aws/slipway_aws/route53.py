"""Strict answers of Route 53: whole batches or nothing, PENDING before INSYNC."""

from __future__ import annotations

import secrets
import string
from typing import Any

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.route53.models import FakeZone, RecordSet
from moto.route53.responses import Route53
from moto.route53.utils import validate_domain_name

from .calls import Gated
from .errors import AwsError
from .world import Change

MOST_RECORDS = 1000
MOST_CHARACTERS = 32_000
ID_ALPHABET = string.ascii_uppercase + string.digits

Key = tuple[str, str, str | None]
# Moto's class declares methods for CloudFormation that it does not define.
make_record: Any = RecordSet


class StrictRoute53(Gated, Route53):
    """Route 53, strictly."""

    def create_hosted_zone(self) -> ActionResult:
        """Create a zone; a caller reference works once."""
        reference = self._get_param("CallerReference")
        if any(zone.caller_reference == reference for zone in self.backend.zones.values()):
            raise AwsError(
                "HostedZoneAlreadyExists",
                "A hosted zone has already been created with the specified caller reference.",
            )
        made: Any = super().create_hosted_zone().result
        zone = made["HostedZone"]
        for record in zone.rrsets:
            record.records = [_value(item) for item in record.records]
        made["ChangeInfo"] = self._accept(zone, None)
        return ActionResult(made)

    def change_resource_record_sets(self) -> ActionResult:
        """Check a whole batch against the zone, then do all of it."""
        zone: Any = self.backend.get_hosted_zone(self._get_param("HostedZoneId"))
        world = self.world
        if world.now() < getattr(zone, "slipway_busy_until", 0.0):
            raise AwsError(
                "PriorRequestNotComplete",
                "The request was rejected because Route 53 was still processing a prior request.",
            )
        batch = self._get_param("ChangeBatch.Changes")
        _check_size(batch)
        records = {_key_of(record): record for record in zone.rrsets}
        problems = [
            problem
            for change in batch
            if (problem := _apply(change["Action"], change["ResourceRecordSet"], zone, records))
        ]
        problems += _conflicting_names(records)
        if problems:
            raise AwsError("InvalidChangeBatch", "[" + ", ".join(problems) + "]")
        zone.rrsets = list(records.values())
        zone.slipway_busy_until = world.now() + world.settings.zone_busy_s
        return ActionResult(
            {"ChangeInfo": self._accept(zone, self._get_param("ChangeBatch.Comment"))}
        )

    def get_change(self) -> ActionResult:
        """How far a change has come."""
        change_id = self._get_param("Id").rsplit("/", 1)[-1]
        change = self.world.changes.get(change_id)
        if change is None:
            raise AwsError("NoSuchChange", f"Could not find resource with ID: {change_id}")
        return ActionResult({"ChangeInfo": self._info(change)})

    def _accept(self, zone: FakeZone, comment: str | None) -> dict[str, Any]:
        now = self.world.now()
        change = Change(
            id="C" + "".join(secrets.choice(ID_ALPHABET) for _ in range(20)),
            zone_id=zone.resource_id,
            accepted_at=now,
            insync_at=now + self.world.settings.change_insync_s,
            submitted_at=utcnow(),
            comment=comment,
        )
        self.world.changes[change.id] = change
        return self._info(change)

    def _info(self, change: Change) -> dict[str, Any]:
        pending = self.world.now() < change.insync_at
        return {
            "Id": f"/change/{change.id}",
            "Status": "PENDING" if pending else "INSYNC",
            "SubmittedAt": change.submitted_at,
            "Comment": change.comment,
        }


def _check_size(batch: list[dict[str, Any]]) -> None:
    """Both limits count an UPSERT twice."""
    records = characters = 0
    for change in batch:
        weight = 2 if change["Action"] == "UPSERT" else 1
        values = [item["Value"] for item in change["ResourceRecordSet"].get("ResourceRecords", [])]
        records += weight * len(values)
        characters += weight * sum(len(value) for value in values)
    if records > MOST_RECORDS:
        raise AwsError("InvalidChangeBatch", "[Number of records limit of 1000 exceeded.]")
    if characters > MOST_CHARACTERS:
        raise AwsError("InvalidChangeBatch", "[Number of characters limit of 32000 exceeded.]")


def _apply(
    action: str, given: dict[str, Any], zone: FakeZone, records: dict[Key, RecordSet]
) -> str | None:
    """Make one change to ``records``, or say why it cannot be made."""
    name = _absolute(given["Name"])
    validate_domain_name(name, code="InvalidChangeBatch")
    if name != zone.name and not name.endswith(f".{zone.name}"):
        return f"RRSet with DNS name {name} is not permitted in zone {zone.name}"
    values = [item["Value"] for item in given.get("ResourceRecords", [])]
    if not given.get("AliasTarget") and (not values or given.get("TTL") is None):
        return (
            "Invalid request: Expected exactly one of [AliasTarget, all of [TTL, and"
            f" ResourceRecords], or TrafficPolicyInstanceId] in Change with [Action={action},"
            f" Name={name}, Type={given['Type']}]"
        )
    record = make_record({**given, "Name": name, "ResourceRecords": values})
    key, found = _key_of(record), records.get(_key_of(record))
    which = f"resource record set [name='{name}', type='{record.type}']"
    if action == "CREATE" and found is not None:
        return f"Tried to create {which} but it already exists"
    if action == "DELETE":
        return _delete(key, record, records, which)
    records[key] = record
    return None


def _delete(key: Key, record: RecordSet, records: dict[Key, RecordSet], which: str) -> str | None:
    found = records.get(key)
    if found is None:
        return f"Tried to delete {which} but it was not found"
    same = sorted(found.records or []) == sorted(record.records or [])
    if not same or str(found.ttl) != str(record.ttl) or found.alias_target != record.alias_target:
        return f"Tried to delete {which} but the values provided do not match the current values"
    del records[key]
    return None


def _conflicting_names(records: dict[Key, RecordSet]) -> list[str]:
    aliases = {name for name, kind, _ in records if kind == "CNAME"}
    others = {name for name, kind, _ in records if kind != "CNAME"}
    return [
        f"RRSet of type CNAME with DNS name {name} is not permitted as it conflicts with"
        " other records with the same DNS name"
        for name in sorted(aliases & others)
    ]


def _key_of(record: RecordSet) -> Key:
    return (_absolute(record.name), str(record.type), record.set_identifier)


def _absolute(name: str) -> str:
    lowered = name.lower()
    return lowered if lowered.endswith(".") else f"{lowered}."


def _value(item: Any) -> str:
    return item["Value"] if isinstance(item, dict) else item
