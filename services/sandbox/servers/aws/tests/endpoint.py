"""A served endpoint as the tests see it: clients, control API, life and death."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

HOME = Path(__file__).resolve().parents[1]
REGION = "eu-west-1"
CIDR = "10.250.16.0/22"
STARTS_WITHIN_S = 30.0


@dataclass
class Network:
    """What bootstrap tells about a region."""

    vpc_id: str
    node_image: str
    hosted_zone_id: str
    zones: dict[str, str]


@dataclass
class Endpoint:
    """One server process."""

    process: subprocess.Popen[str]
    url: str
    arguments: tuple[str, ...]
    network: Network | None = None
    clients: dict[tuple[str, str], Any] = field(default_factory=dict)

    @classmethod
    @contextlib.contextmanager
    def started(cls, *arguments: str) -> Iterator[Endpoint]:
        """Serve on a free port until the block ends."""
        endpoint = cls.start(*arguments)
        try:
            yield endpoint
        finally:
            endpoint.stop()

    @classmethod
    def start(cls, *arguments: str) -> Endpoint:
        """Serve on a free port."""
        process = run("serve", "--port", "0", *arguments)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the endpoint has not started"
        return cls(process, json.loads(line)["listening"], arguments)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the process and wait for it."""
        self.process.send_signal(how)
        return self.process.wait(timeout=20)

    def bootstrap(self, cidr: str, region: str = REGION) -> Network:
        """Run the bootstrap command and read what it prints."""
        process = run(
            *("bootstrap", "--endpoint", self.url, "--region", region, "--stack", "t1"),
            *("--cidr", cidr, "--dns-suffix", f"{region}.slipway.test"),
        )
        output, _ = process.communicate(timeout=STARTS_WITHIN_S)
        assert process.returncode == 0
        return Network(**json.loads(output))

    def client(self, service: str, region: str = REGION) -> Any:
        """A client that never repeats a call by itself."""
        if (service, region) not in self.clients:
            self.clients[service, region] = boto3.client(
                service,
                region_name=region,
                endpoint_url=self.url,
                aws_access_key_id="test",
                aws_secret_access_key="test",
                config=Config(
                    retries={"total_max_attempts": 1}, read_timeout=20, max_pool_connections=50
                ),
            )
        return self.clients[service, region]

    @property
    def ec2(self) -> Any:
        """EC2 of the usual region."""
        return self.client("ec2")

    @property
    def route53(self) -> Any:
        """Route 53."""
        return self.client("route53")

    def get(self, path: str) -> Any:
        """Ask the control API."""
        return self._control("GET", path, None)

    def post(self, path: str, body: Any = None) -> Any:
        """Tell the control API."""
        return self._control("POST", path, body)

    def patch(self, path: str, body: Any) -> Any:
        """Change something by the control API."""
        return self._control("PATCH", path, body)

    def delete(self, path: str) -> Any:
        """Remove something by the control API."""
        return self._control("DELETE", path, None)

    def advance(self, seconds: float) -> None:
        """Let the endpoint's time pass."""
        self.patch("/clock", {"advance_s": seconds})

    def fault(self, kind: str, **values: Any) -> str:
        """Switch a fault on and return its id."""
        return str(self.post("/faults", {"kind": kind, **values})["id"])

    def fired(self, fault_id: str) -> int:
        """How often a fault has fired."""
        return int(self.get(f"/faults/{fault_id}")["fired"])

    def calls(self, action: str) -> int:
        """How many calls of an action (`ec2:RunInstances`) have come."""
        return int(self.get("/counters")["calls"].get(action, {"total": 0})["total"])

    def launch(self, zone: str = "a", **values: Any) -> Any:
        """Launch one machine."""
        assert self.network is not None
        given = {
            "ImageId": self.network.node_image,
            "InstanceType": "m7i.large",
            "MinCount": 1,
            "MaxCount": 1,
            "SubnetId": self.network.zones[f"{REGION}{zone}"],
            **values,
        }
        return self.ec2.run_instances(**given)["Instances"][0]

    def running(self, zone: str = "a", **values: Any) -> str:
        """Launch a machine and let it start."""
        instance_id = self.launch(zone, **values)["InstanceId"]
        self.advance(2)
        return str(instance_id)

    def create_volume(self, zone: str = "a", **values: Any) -> Any:
        """Create a volume."""
        given = {
            "AvailabilityZone": f"{REGION}{zone}",
            "Size": 20,
            "VolumeType": "gp3",
            **values,
        }
        return self.ec2.create_volume(**given)

    def available(self, zone: str = "a", **values: Any) -> str:
        """Create a volume and let it become available."""
        volume_id = self.create_volume(zone, **values)["VolumeId"]
        self.advance(1)
        return str(volume_id)

    def attached(self, device: str = "/dev/sdf") -> tuple[str, str]:
        """A running machine and a volume attached to it."""
        instance_id, volume_id = self.running(), self.available()
        self.ec2.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device=device)
        self.advance(1)
        return instance_id, volume_id

    def instance(self, instance_id: str) -> Any:
        """Describe one machine."""
        answer = self.ec2.describe_instances(InstanceIds=[instance_id])
        return answer["Reservations"][0]["Instances"][0]

    def state(self, instance_id: str) -> str:
        """The state of a machine."""
        return str(self.instance(instance_id)["State"]["Name"])

    def volume(self, volume_id: str) -> Any:
        """Describe one volume."""
        return self.ec2.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]

    def _control(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_control{path}", data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from error


def run(*arguments: str) -> subprocess.Popen[str]:
    """Run the package's command line."""
    return subprocess.Popen(
        [sys.executable, "-m", "slipway_aws", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HOME)},
    )


@contextlib.contextmanager
def refused(code: str, status: int = 400) -> Iterator[None]:
    """Expect AWS's error ``code``."""
    with pytest.raises(ClientError) as caught:
        yield
    answer = caught.value.response
    assert answer["Error"]["Code"] == code, answer["Error"]
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == status


def token() -> str:
    """A client token that nobody has used."""
    return uuid.uuid4().hex


def eventually(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait until something holds, at most so long."""
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, "did not happen in time"
        time.sleep(0.02)
