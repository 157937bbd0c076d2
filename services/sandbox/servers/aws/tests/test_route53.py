"""Records: whole batches, PENDING before INSYNC, one change of a zone at a time."""

from __future__ import annotations

from typing import Any

import pytest
from endpoint import Endpoint, refused, token

SUFFIX = "eu-west-1.slipway.test"


def record(name: str, *values: str, kind: str = "A", ttl: int = 30) -> dict[str, Any]:
    return {
        "Name": f"{name}.{SUFFIX}",
        "Type": kind,
        "TTL": ttl,
        "ResourceRecords": [{"Value": value} for value in values],
    }


def change(endpoint: Endpoint, *changes: tuple[str, dict[str, Any]]) -> Any:
    batch = [{"Action": action, "ResourceRecordSet": given} for action, given in changes]
    answer = endpoint.route53.change_resource_record_sets(
        HostedZoneId=endpoint.network.hosted_zone_id, ChangeBatch={"Changes": batch}
    )
    return answer["ChangeInfo"]


def found(endpoint: Endpoint, name: str) -> list[Any]:
    answer = endpoint.route53.list_resource_record_sets(
        HostedZoneId=endpoint.network.hosted_zone_id, StartRecordName=f"{name}.{SUFFIX}"
    )
    wanted = f"{name}.{SUFFIX}."
    return [item for item in answer["ResourceRecordSets"] if item["Name"] == wanted]


@pytest.fixture
def dns(strict: Endpoint) -> Endpoint:
    strict.patch("/settings", {"zone_busy_s": 0.0})
    return strict


def test_change_is_pending_before_it_is_in_sync(dns: Endpoint) -> None:
    info = change(dns, ("UPSERT", record(token(), "10.0.0.1")))
    assert info["Status"] == "PENDING"
    assert dns.route53.get_change(Id=info["Id"])["ChangeInfo"]["Status"] == "PENDING"
    dns.advance(2)
    assert dns.route53.get_change(Id=info["Id"])["ChangeInfo"]["Status"] == "INSYNC"
    with refused("NoSuchChange", 404):
        dns.route53.get_change(Id="/change/CNOTHERE")


def test_create_upsert_delete(dns: Endpoint) -> None:
    name = token()
    change(dns, ("CREATE", record(name, "10.0.0.1")), ("CREATE", record(name, '"x"', kind="TXT")))
    assert [item["Type"] for item in found(dns, name)] == ["A", "TXT"]
    with refused("InvalidChangeBatch"):
        change(dns, ("CREATE", record(name, "10.0.0.2")))
    change(dns, ("UPSERT", record(name, "10.0.0.2")))
    assert found(dns, name)[0]["ResourceRecords"] == [{"Value": "10.0.0.2"}]
    with refused("InvalidChangeBatch"):
        change(dns, ("DELETE", record(name, "10.0.0.1")))
    with refused("InvalidChangeBatch"):
        change(dns, ("DELETE", record(name, "10.0.0.2", ttl=60)))
    change(dns, ("DELETE", record(name, "10.0.0.2")), ("DELETE", record(name, '"x"', kind="TXT")))
    assert found(dns, name) == []
    with refused("InvalidChangeBatch"):
        change(dns, ("DELETE", record(name, "10.0.0.2")))
    change(dns, ("CREATE", record(name, "10.0.0.3")))


def test_batch_is_all_or_nothing(dns: Endpoint) -> None:
    name = token()
    with refused("InvalidChangeBatch"):
        change(
            dns,
            ("CREATE", record(name, "10.0.0.1")),
            ("DELETE", record(f"absent-{name}", "10.0.0.1")),
        )
    assert found(dns, name) == []


def test_replacing_in_one_batch(dns: Endpoint) -> None:
    name = token()
    change(dns, ("CREATE", record(name, "10.0.0.1")))
    change(dns, ("DELETE", record(name, "10.0.0.1")), ("CREATE", record(name, "10.0.0.2")))
    assert found(dns, name)[0]["ResourceRecords"] == [{"Value": "10.0.0.2"}]


def test_limits_of_a_batch(dns: Endpoint) -> None:
    changes = [("UPSERT", record(f"r{number}-{token()}", "10.0.0.1")) for number in range(501)]
    with refused("InvalidChangeBatch"):
        change(dns, *changes)
    change(dns, *changes[:500])
    with refused("InvalidChangeBatch"):
        change(dns, ("CREATE", {**record("x", "10.0.0.1"), "Name": "x.example.org"}))
    name = token()
    with refused("InvalidChangeBatch"):
        change(
            dns,
            ("CREATE", record(name, "10.0.0.1")),
            ("CREATE", record(name, "elsewhere.example.org", kind="CNAME")),
        )


def test_zone_is_busy_after_a_change(strict: Endpoint) -> None:
    strict.advance(1)
    change(strict, ("UPSERT", record("busy", "10.0.0.1")))
    with refused("PriorRequestNotComplete"):
        change(strict, ("UPSERT", record("busy", "10.0.0.2")))
    strict.advance(0.1)
    change(strict, ("UPSERT", record("busy", "10.0.0.2")))


def test_zones(strict: Endpoint) -> None:
    zone_id = strict.network.hosted_zone_id
    zone = strict.route53.get_hosted_zone(Id=zone_id)["HostedZone"]
    assert zone["Name"] == f"{SUFFIX}."
    with refused("HostedZoneAlreadyExists", 409):
        strict.route53.create_hosted_zone(Name=f"{SUFFIX}.", CallerReference=f"t1/{SUFFIX}.")
    with refused("NoSuchHostedZone", 404):
        strict.route53.get_hosted_zone(Id="ZNOTHERE")
    kinds = [
        item["Type"]
        for item in strict.route53.list_resource_record_sets(HostedZoneId=zone_id)[
            "ResourceRecordSets"
        ]
    ]
    assert {"NS", "SOA"} <= set(kinds)


def test_rate(strict: Endpoint) -> None:
    strict.patch("/settings", {"throttle_factor": 1.0})
    strict.post("/reset")
    zone_id = strict.network.hosted_zone_id
    for _ in range(50):
        strict.route53.get_hosted_zone(Id=zone_id)
    with refused("Throttling"):
        strict.route53.get_hosted_zone(Id=zone_id)
    strict.advance(1)
    for _ in range(10):
        strict.route53.get_hosted_zone(Id=zone_id)
    with refused("Throttling"):
        strict.route53.get_hosted_zone(Id=zone_id)
