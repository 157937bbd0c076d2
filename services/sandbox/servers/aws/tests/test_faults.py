"""Faults, throttling, stale answers, dead and isolated machines, counts."""

from __future__ import annotations

import threading
import time

import pytest
from botocore.exceptions import ConnectionClosedError, HTTPClientError
from endpoint import Endpoint, eventually, refused, token


def test_dropped_reply_has_done_the_work(strict: Endpoint) -> None:
    key = token()
    fault = strict.fault("drop_reply", action="RunInstances", times=1)
    with pytest.raises((ConnectionClosedError, HTTPClientError)):
        strict.launch(ClientToken=key)
    made = [
        item
        for item in strict.get("/journal")["calls"]
        if item["action"] == "RunInstances" and item["dropped"]
    ]
    assert len(made) == 1 and strict.fired(fault) == 1
    before = len(strict.get("/instances")["instances"])
    strict.launch(ClientToken=key)
    assert len(strict.get("/instances")["instances"]) == before


def test_dropped_request_has_done_nothing(strict: Endpoint) -> None:
    before = len(strict.get("/instances")["instances"])
    strict.fault("drop_request", action="RunInstances", times=1)
    with pytest.raises((ConnectionClosedError, HTTPClientError)):
        strict.launch()
    counted = strict.get("/counters")["calls"]["ec2:RunInstances"]
    assert counted == {"total": 1, "results": {"Dropped": 1}}
    assert len(strict.get("/instances")["instances"]) == before


def test_fail_the_next_calls(strict: Endpoint) -> None:
    fault = strict.fault(
        "fail", action="Describe*", region="eu-west-1", code="Unavailable", skip=1, times=2
    )
    strict.ec2.describe_volumes()
    for _ in range(2):
        with refused("Unavailable", 503):
            strict.ec2.describe_volumes()
    strict.ec2.describe_volumes()
    assert strict.fired(fault) == 2
    assert strict.get(f"/faults/{fault}")["remaining"] == 0


def test_fault_for_one_resource(strict: Endpoint) -> None:
    first, second = strict.available(), strict.available()
    fault = strict.fault("fail", action="ModifyVolume", contains=first, code="IncorrectState")
    strict.ec2.modify_volume(VolumeId=second, Size=30)
    with refused("IncorrectState"):
        strict.ec2.modify_volume(VolumeId=first, Size=30)
    strict.delete(f"/faults/{fault}")
    strict.ec2.modify_volume(VolumeId=first, Size=30)


def test_throttle_on_demand(strict: Endpoint) -> None:
    strict.fault("throttle", times=2)
    with refused("RequestLimitExceeded", 503):
        strict.ec2.describe_volumes()
    with refused("Throttling"):
        strict.route53.list_hosted_zones()


def test_delay_ends_with_its_fault(strict: Endpoint) -> None:
    fault = strict.fault("delay", action="DescribeVolumes", delay_s=60)
    answered = threading.Event()

    def ask() -> None:
        strict.client("ec2").describe_volumes(MaxResults=5)
        answered.set()

    thread = threading.Thread(target=ask)
    thread.start()
    eventually(lambda: strict.fired(fault) == 1)
    assert not answered.is_set()
    # Others are not held up by it.
    strict.ec2.describe_security_groups()
    strict.delete(f"/faults/{fault}")
    assert answered.wait(10)
    thread.join()


def test_stuck_attachment(strict: Endpoint) -> None:
    fault = strict.fault("stick", transition="volume-attaching")
    _, volume_id = strict.attached()
    strict.advance(600)
    assert strict.volume(volume_id)["Attachments"][0]["State"] == "attaching"
    assert strict.fired(fault) == 1
    strict.delete(f"/faults/{fault}")
    strict.advance(1)
    assert strict.volume(volume_id)["Attachments"][0]["State"] == "attached"


def test_spoilt_snapshot(strict: Endpoint) -> None:
    volume_id, other_id = strict.available(), strict.available()
    said = "An internal error occurred."
    fault = strict.fault("spoil", transition="snapshot-pending", contains=volume_id, times=1, message=said)

    def kept(of: str) -> tuple[str, str | None]:
        snapshot_id = strict.ec2.create_snapshot(VolumeId=of)["SnapshotId"]
        strict.advance(600)
        found = strict.ec2.describe_snapshots(SnapshotIds=[snapshot_id])["Snapshots"][0]
        return found["State"], found.get("StateMessage") or None

    assert kept(other_id) == ("completed", None)
    assert strict.fired(fault) == 0
    assert kept(volume_id) == ("error", said)
    assert strict.fired(fault) == 1
    assert kept(volume_id) == ("completed", None)


def test_a_launch_that_is_taken_and_comes_to_nothing(strict: Endpoint) -> None:
    key = token()
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "which", "Value": key}]}]
    said = {"code": "Client.VolumeLimitExceeded", "message": "Volume limit exceeded"}
    fault = strict.fault("spoil", transition="instance-pending", contains=key, times=1, **said)
    assert strict.state(strict.running()) == "running"
    assert strict.launch(TagSpecifications=tags, ClientToken=key)["State"]["Name"] == "pending"
    assert strict.fired(fault) == 0
    strict.advance(2)
    assert strict.fired(fault) == 1
    again = strict.launch(TagSpecifications=tags, ClientToken=key)
    assert again["State"]["Name"] == "terminated"
    reason = strict.instance(again["InstanceId"])["StateReason"]
    assert reason["Code"] == "Client.VolumeLimitExceeded"
    assert strict.state(strict.running(TagSpecifications=tags)) == "running"
    strict.fault("spoil", transition="instance-pending", contains=key)
    ended = strict.running(TagSpecifications=tags)
    assert strict.instance(ended)["StateReason"]["Code"] == "Server.InternalError"


def test_a_volume_that_is_taken_and_comes_to_nothing(strict: Endpoint) -> None:
    key = token()
    given = {
        "TagSpecifications": [
            {"ResourceType": "volume", "Tags": [{"Key": "which", "Value": key}]}
        ],
        "ClientToken": key,
    }
    fault = strict.fault("spoil", transition="volume-creating", contains=key)
    volume_id = strict.create_volume(**given)["VolumeId"]
    strict.advance(0.3)
    assert strict.volume(volume_id)["State"] == "creating"
    strict.advance(1)
    assert strict.fired(fault) == 1
    with refused("InvalidVolume.NotFound"):
        strict.volume(volume_id)
    strict.delete(f"/faults/{fault}")
    with refused("IdempotentParameterMismatch"):
        strict.create_volume(**given)
    given["ClientToken"] = token()
    assert strict.volume(strict.available(**given))["State"] == "available"


def test_a_modification_that_ec2_gives_up(strict: Endpoint) -> None:
    volume_id = strict.available()
    fault = strict.fault("spoil", transition="volume-modifying", contains=volume_id, message="no")
    strict.ec2.modify_volume(VolumeId=volume_id, Size=40)
    strict.advance(1)
    answer = strict.ec2.describe_volumes_modifications(VolumeIds=[volume_id])
    [found] = answer["VolumesModifications"]
    assert (found["ModificationState"], found["StatusMessage"]) == ("failed", "no")
    assert strict.volume(volume_id)["Size"] == 20
    strict.delete(f"/faults/{fault}")
    strict.ec2.modify_volume(VolumeId=volume_id, Size=40)
    strict.advance(1)
    assert strict.volume(volume_id)["Size"] == 40


def test_stale_describe_goes_back_in_time(strict: Endpoint) -> None:
    instance_id = strict.running()
    fault = strict.fault("stale", action="DescribeInstances", stale_s=5)
    strict.ec2.stop_instances(InstanceIds=[instance_id])
    newer = strict.launch()["InstanceId"]
    strict.advance(2)
    assert strict.state(instance_id) == "running"
    with refused("InvalidInstanceID.NotFound"):
        strict.instance(newer)
    strict.advance(3.5)
    assert strict.state(instance_id) == "stopping"
    strict.advance(60)
    assert strict.state(instance_id) == "stopped"
    assert strict.fired(fault) == 4
    strict.delete(f"/faults/{fault}")
    assert strict.state(newer) == "running"


def test_stale_now_and_then(strict: Endpoint) -> None:
    volume_id = strict.available()
    strict.fault("stale", action="DescribeVolumes", stale_s=1000, probability=0.5)
    strict.ec2.create_tags(Resources=[volume_id], Tags=[{"Key": "new", "Value": "1"}])
    answers = {bool(strict.volume(volume_id).get("Tags")) for _ in range(60)}
    assert answers == {True, False}


def test_lag_of_every_describe(strict: Endpoint) -> None:
    volume_id = strict.available()
    strict.patch("/settings", {"describe_lag_s": 3.0})
    strict.ec2.create_tags(Resources=[volume_id], Tags=[{"Key": "new", "Value": "1"}])
    assert "Tags" not in strict.volume(volume_id)
    strict.advance(3.1)
    assert strict.volume(volume_id)["Tags"] == [{"Key": "new", "Value": "1"}]


def test_bucket_of_requests(strict: Endpoint) -> None:
    strict.patch("/settings", {"throttle_factor": 1.0})
    strict.post("/reset")
    for _ in range(5):
        strict.launch()
    with refused("RequestLimitExceeded", 503):
        strict.launch()
    strict.available()
    strict.advance(0.3)
    strict.launch()
    counted = strict.get("/counters")["calls"]["ec2:RunInstances"]
    assert counted == {"total": 7, "results": {"ok": 6, "RequestLimitExceeded": 1}}


def test_buckets_are_apart_by_region_and_action(strict: Endpoint) -> None:
    strict.patch("/settings", {"throttle_factor": 0.2})
    strict.post("/reset")
    for _ in range(10):
        strict.ec2.describe_volumes()
    with refused("RequestLimitExceeded", 503):
        strict.ec2.describe_volumes()
    # Narrowed describes have another bucket, other actions and regions theirs.
    strict.ec2.describe_volumes(MaxResults=5)
    strict.ec2.describe_snapshots()
    strict.client("ec2", "eu-central-1").describe_volumes()


def test_bucket_of_resources(strict: Endpoint) -> None:
    strict.patch("/settings", {"throttle_factor": 0.01})
    strict.post("/reset")
    # A hundredth of 1000 machines; a hundredth of 5 requests would be none at all.
    with refused("RequestLimitExceeded", 503):
        strict.launch()
    strict.patch("/settings", {"throttle_factor": 0.2})
    strict.post("/reset")
    with refused("RequestLimitExceeded", 503):
        strict.launch(MinCount=201, MaxCount=201)
    strict.launch()


def test_machine_dies(strict: Endpoint) -> None:
    instance_id = strict.running(DisableApiTermination=True)
    volume_id = strict.available()
    strict.ec2.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device="/dev/sdf")
    strict.advance(1)
    killed = strict.post(f"/instances/{instance_id}/kill", {"how": "terminate"})
    assert killed["state"] == "terminated"
    described = strict.instance(instance_id)
    assert described["State"]["Name"] == "terminated"
    assert described["StateReason"]["Code"] == "Server.InternalError"
    assert strict.volume(volume_id)["State"] == "available"


def status_of(endpoint: Endpoint, instance_id: str) -> str:
    answer = endpoint.ec2.describe_instance_status(InstanceIds=[instance_id])
    return str(answer["InstanceStatuses"][0]["SystemStatus"]["Status"])


def test_machine_is_impaired_and_repaired(strict: Endpoint) -> None:
    instance_id = strict.running()
    assert status_of(strict, instance_id) == "ok"
    strict.post(f"/instances/{instance_id}/kill", {"how": "impair"})
    assert status_of(strict, instance_id) == "impaired"
    assert strict.state(instance_id) == "running"
    assert machine(strict, instance_id)["impaired"] is True
    strict.post(f"/instances/{instance_id}/repair")
    assert status_of(strict, instance_id) == "ok"


def machine(endpoint: Endpoint, instance_id: str) -> dict[str, object]:
    listed = endpoint.get("/instances?region=eu-west-1")["instances"]
    return next(item for item in listed if item["instance_id"] == instance_id)


def test_isolation_is_told_to_the_agent(strict: Endpoint) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "questdb.io/cluster", "Value": "c"}]}]
    instance_id = strict.running(TagSpecifications=tags, UserData='{"nodeName": "n"}')
    found = machine(strict, instance_id)
    assert (found["isolated"], found["state"], found["zone"]) == (False, "running", "eu-west-1a")
    assert found["private_ip"] == strict.instance(instance_id)["PrivateIpAddress"]
    assert found["tags"] == {"questdb.io/cluster": "c"}
    assert found["user_data"] == '{"nodeName": "n"}'
    strict.post(f"/instances/{instance_id}/isolate", {"isolated": True})
    assert machine(strict, instance_id)["isolated"] is True
    strict.post(f"/instances/{instance_id}/isolate", {"isolated": False})
    assert machine(strict, instance_id)["isolated"] is False


def test_journal(strict: Endpoint) -> None:
    strict.available()
    calls = strict.get("/journal?action=CreateVolume")["calls"]
    assert [call["params"]["Size"] for call in calls] == [20]
    assert strict.get(f"/journal?since={calls[-1]['serial']}")["calls"] == []
    journal = strict.get("/journal")
    assert journal["latest"] == journal["calls"][-1]["serial"]
    strict.patch("/settings", {"journal_length": 1})
    strict.ec2.describe_volumes()
    kept = [call["action"] for call in strict.get("/journal")["calls"]]
    assert kept == ["CreateVolume", "DescribeVolumes"]


def test_mistakes_in_control_calls_are_told(strict: Endpoint) -> None:
    for path, body in (
        ("/faults", {"kind": "explode"}),
        ("/faults", {"kind": "fail", "acton": "x"}),
        ("/instances/i-0/kill", {}),
    ):
        with pytest.raises(AssertionError, match="40[04]"):
            strict.post(path, body)
    with pytest.raises(AssertionError, match="unknown setting"):
        strict.patch("/settings", {"no_such_thing": 1})


def test_time_runs_by_itself(strict: Endpoint) -> None:
    instance_id = strict.launch()["InstanceId"]
    scale = strict.get("/clock")["scale"]
    try:
        strict.patch("/clock", {"scale": 20})
        started = time.monotonic()
        eventually(lambda: machine(strict, instance_id)["state"] == "running", 5)
        assert time.monotonic() - started < 5
    finally:
        strict.patch("/clock", {"scale": scale})
