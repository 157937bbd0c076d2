"""A restarted endpoint goes on where the last one was, however it ended."""

from __future__ import annotations

import contextlib
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError
from endpoint import CIDR, REGION, Endpoint, eventually, refused, run, token

SLOW = ("--time-scale", "0.000001", "--setting", "throttle_factor=0")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_restart_keeps_everything(state_file: Path, how: signal.Signals) -> None:
    first = Endpoint.start("--state", str(state_file), *SLOW)
    first.network = first.bootstrap(CIDR)
    key = token()
    instance_id, volume_id = first.attached()
    isolated = first.running(ClientToken=key, DisableApiTermination=True)
    first.post(f"/instances/{isolated}/isolate", {"isolated": True})
    first.ec2.modify_volume(VolumeId=volume_id, Size=40)
    change = first.route53.change_resource_record_sets(
        HostedZoneId=first.network.hosted_zone_id,
        ChangeBatch={
            "Changes": [
                {
                    "Action": "CREATE",
                    "ResourceRecordSet": {
                        "Name": f"x.{REGION}.slipway.test",
                        "Type": "A",
                        "TTL": 30,
                        "ResourceRecords": [{"Value": "10.0.0.1"}],
                    },
                }
            ]
        },
    )["ChangeInfo"]
    pending = first.launch(ClientToken=key + "p")
    first.stop(how)

    with Endpoint.started("--state", str(state_file), *SLOW) as second:
        second.network = second.bootstrap(CIDR)
        assert second.network == first.network
        second.advance(0.3)
        assert second.state(pending["InstanceId"]) == "pending"
        second.advance(2)
        assert second.state(pending["InstanceId"]) == "running"
        assert second.volume(volume_id)["Attachments"][0]["InstanceId"] == instance_id
        assert second.volume(volume_id)["Size"] == 40
        assert second.launch(ClientToken=key, DisableApiTermination=True)["InstanceId"] == isolated
        with refused("IdempotentParameterMismatch"):
            second.launch(ClientToken=key)
        with refused("OperationNotPermitted"):
            second.ec2.terminate_instances(InstanceIds=[isolated])
        flags = {item["instance_id"]: item["isolated"] for item in instances(second)}
        assert flags[isolated] is True
        status = second.route53.get_change(Id=change["Id"])["ChangeInfo"]["Status"]
        assert status == "INSYNC"
        addresses = [item["private_ip"] for item in instances(second)]
        addresses.append(second.launch()["PrivateIpAddress"])
        assert len(addresses) == len(set(addresses))
        assert not {f"10.250.16.{number}" for number in range(4)} & set(addresses)


def test_no_acknowledged_machine_is_lost(state_file: Path) -> None:
    first = Endpoint.start("--state", str(state_file), *SLOW)
    first.network = first.bootstrap(CIDR)
    keys = [token() for _ in range(200)]
    # Made before the threads want it: making one is not safe for threads.
    assert first.ec2
    acknowledged: dict[str, str] = {}

    def launch(key: str) -> None:
        with contextlib.suppress(BotoCoreError):
            acknowledged[key] = first.launch(ClientToken=key)["InstanceId"]

    with ThreadPoolExecutor(8) as pool:
        for key in keys:
            pool.submit(launch, key)
        eventually(lambda: len(acknowledged) >= 20)
        first.stop(signal.SIGKILL)
    assert 20 <= len(acknowledged) < 200

    with Endpoint.started("--state", str(state_file), *SLOW) as second:
        second.network = first.network
        known = {str(item["instance_id"]) for item in instances(second)}
        assert set(acknowledged.values()) <= known
        # Asked again, every token still stands for one machine.
        again = {key: second.launch(ClientToken=key)["InstanceId"] for key in keys}
        assert {key: again[key] for key in acknowledged} == acknowledged
        assert len(instances(second)) == len(set(again.values())) == 200


def instances(endpoint: Endpoint) -> list[dict[str, object]]:
    return list(endpoint.get("/instances")["instances"])


def test_answer_waits_for_the_file(state_file: Path) -> None:
    with Endpoint.started("--state", str(state_file), *SLOW) as endpoint:
        endpoint.network = endpoint.bootstrap(CIDR)
        for _ in range(5):
            before = state_file.stat().st_mtime_ns
            endpoint.launch()
            assert state_file.stat().st_mtime_ns > before
        assert state_file.stat().st_mode & 0o077 == 0


def test_lazy_file_is_written_soon(state_file: Path) -> None:
    arguments = ("--state", str(state_file), "--state-mode", "lazy", *SLOW)
    first = Endpoint.start(*arguments)
    first.network = first.bootstrap(CIDR)
    instance_id = first.launch()["InstanceId"]
    first.post("/flush")
    first.stop(signal.SIGKILL)
    with Endpoint.started(*arguments) as second:
        second.advance(3)
        assert second.state(instance_id) == "running"


def test_two_that_write_at_once_do_not_spoil_the_file(state_file: Path) -> None:
    arguments = ("--state", str(state_file), "--state-mode", "lazy", *SLOW)
    first = Endpoint.start(*arguments)
    first.network = first.bootstrap(CIDR)
    instance_id = first.launch()["InstanceId"]
    with ThreadPoolExecutor(8) as pool:
        # A write that lost its file to another answers with an error, which raises here.
        list(pool.map(lambda _: first.post("/flush"), range(24)))
    first.stop(signal.SIGKILL)
    with Endpoint.started(*arguments) as second:
        second.advance(3)
        assert second.state(instance_id) == "running"


def test_broken_file_is_not_overwritten(state_file: Path) -> None:
    state_file.parent.mkdir()
    state_file.write_bytes(b"not a state")
    process = run("serve", "--port", "0", "--state", str(state_file))
    assert process.wait(timeout=30) == 3
    assert state_file.read_bytes() == b"not a state"


def test_taken_port_is_told() -> None:
    with Endpoint.started("--plain") as endpoint:
        port = endpoint.url.rsplit(":", 1)[-1]
        assert run("serve", "--port", port).wait(timeout=30) == 2
