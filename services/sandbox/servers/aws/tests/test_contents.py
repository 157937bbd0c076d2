"""What snapshots hold: the bytes of a disk, as it lay when CreateSnapshot was called."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from endpoint import CIDR, Endpoint, eventually, refused, run

STANDING = ("--time-scale", "0.000001", "--setting", "throttle_factor=0")
# Copies, waits until it is let go, and then complains of what the test wants.
SLOW_COPY = """#!/bin/sh
/bin/cp "$@" || exit
echo "$*" >> "{here}/calls"
while [ -e "{here}/hold" ]; do sleep 0.02; done
if [ -e "{here}/complaint" ]; then cat "{here}/complaint" >&2; rm "{here}/complaint"; exit 1; fi
"""


@dataclass
class Site:
    """An endpoint, the data of two clusters' agents, and a copy command in the test's hand."""

    home: Path
    endpoint: Endpoint

    def arguments(self) -> tuple[str, ...]:
        """What an endpoint over the same directories is started with."""
        return self.endpoint.arguments

    @property
    def snapshots(self) -> Path:
        """Where copies are kept."""
        return self.home / "snapshots"

    def disk(self, volume_id: str, cluster: str = "one") -> Path:
        """The directory of a volume, made as an agent would."""
        path = self.home / "data" / cluster / "nodes" / "volumes" / volume_id
        path.mkdir(parents=True, exist_ok=True)
        return path

    def begin(self, volume_id: str) -> str:
        """Create a snapshot that describes know of."""
        snapshot_id = self.endpoint.ec2.create_snapshot(VolumeId=volume_id)["SnapshotId"]
        self.endpoint.advance(1)
        return str(snapshot_id)

    def whole(self, volume_id: str) -> str:
        """Create a snapshot and let it complete."""
        snapshot_id = self.begin(volume_id)
        self.endpoint.advance(2)
        assert self.described(snapshot_id)["State"] == "completed"
        return snapshot_id

    def described(self, snapshot_id: str) -> Any:
        """Describe one snapshot."""
        answer = self.endpoint.ec2.describe_snapshots(SnapshotIds=[snapshot_id])
        return answer["Snapshots"][0]

    def copies(self) -> list[str]:
        """Every whole copy."""
        return sorted(path.name for path in self.snapshots.glob("snap-*"))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site with nothing on it."""
    command = tmp_path / "bin" / "cp"
    command.parent.mkdir()
    command.write_text(SLOW_COPY.format(here=tmp_path))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    arguments = (
        *("--state", str(tmp_path / "aws.state"), *STANDING),
        *("--disks", f"{tmp_path}/data/*/nodes/volumes", "--snapshots", f"{tmp_path}/snapshots"),
    )
    with Endpoint.started(*arguments) as endpoint:
        endpoint.network = endpoint.bootstrap(CIDR)
        yield Site(tmp_path, endpoint)
    (tmp_path / "hold").unlink(missing_ok=True)


def test_a_snapshot_holds_the_disk_as_it_was(site: Site) -> None:
    volume_id = site.endpoint.available()
    disk = site.disk(volume_id, "two")
    (disk / "db").mkdir(mode=0o2770)
    (disk / "db").chmod(0o2770)
    (disk / "db" / "x.d").write_bytes(b"before")
    (disk / "link").symlink_to("db/x.d")
    if os.geteuid() == 0:
        os.chown(disk / "db" / "x.d", 10001, 10002)
    snapshot_id = site.begin(volume_id)
    kept = site.snapshots / snapshot_id
    # Already there, though EC2 still calls the snapshot pending.
    assert site.described(snapshot_id)["State"] == "pending"
    (disk / "db" / "x.d").write_bytes(b"after")
    assert (kept / "db" / "x.d").read_bytes() == b"before"
    assert (kept / "db").stat().st_mode & 0o7777 == 0o2770
    assert os.readlink(kept / "link") == "db/x.d"
    if os.geteuid() == 0:
        owner = (kept / "db" / "x.d").stat()
        assert (owner.st_uid, owner.st_gid) == (10001, 10002)
    site.endpoint.advance(2)
    assert site.described(snapshot_id)["State"] == "completed"
    site.endpoint.ec2.delete_snapshot(SnapshotId=snapshot_id)
    assert site.copies() == []


def test_a_volume_without_a_disk_gives_an_empty_snapshot(site: Site) -> None:
    snapshot_id = site.whole(site.endpoint.available())
    assert list((site.snapshots / snapshot_id).iterdir()) == []


def test_others_do_not_wait_for_a_copy_and_see_it_pending(site: Site) -> None:
    volume_id, other = site.endpoint.available(), site.endpoint.available()
    (site.disk(volume_id) / "x").write_text("x")
    (site.home / "hold").touch()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(site.endpoint.ec2.create_snapshot, VolumeId=volume_id)
        eventually(lambda: (site.home / "calls").exists())
        site.endpoint.advance(60)
        assert site.endpoint.volume(other)["State"] == "available"
        snapshots = site.endpoint.ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]
        assert [item["State"] for item in snapshots] == ["pending"]
        assert not answer.done() and site.copies() == []
        (site.home / "hold").unlink()
        snapshot_id = answer.result()["SnapshotId"]
    assert site.copies() == [snapshot_id]
    site.endpoint.advance(1)
    assert site.described(snapshot_id)["State"] == "completed"


def test_a_snapshot_deleted_while_it_is_copied_leaves_nothing(site: Site) -> None:
    volume_id = site.endpoint.available()
    (site.disk(volume_id) / "x").write_text("x")
    (site.home / "hold").touch()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(site.endpoint.ec2.create_snapshot, VolumeId=volume_id)
        eventually(lambda: (site.home / "calls").exists())
        site.endpoint.advance(60)
        snapshots = site.endpoint.ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]
        site.endpoint.ec2.delete_snapshot(SnapshotId=snapshots[0]["SnapshotId"])
        (site.home / "hold").unlink()
        answer.result()
    assert site.copies() == []


def test_files_that_vanish_are_no_failure_and_replaced_ones_are_copied_again(site: Site) -> None:
    volume_id = site.endpoint.available()
    (site.disk(volume_id) / "x").write_text("x")
    gone = "cp: cannot stat '/d/a: b': No such file or directory\n"
    gone += "cp: '/d/c': No such file or directory\n"
    (site.home / "complaint").write_text(gone)
    site.whole(volume_id)
    assert not (site.home / "complaint").exists()
    assert len((site.home / "calls").read_text().splitlines()) == 1
    replaced = "cp: skipping file '/d/y', as it was replaced while being copied\n"
    (site.home / "complaint").write_text(gone + replaced)
    site.endpoint.advance(2)
    site.whole(volume_id)
    assert len((site.home / "calls").read_text().splitlines()) == 3


def test_a_failed_copy_fails_the_snapshot_later(site: Site) -> None:
    volume_id = site.endpoint.available()
    (site.disk(volume_id) / "x").write_text("x")
    (site.home / "complaint").write_text("cp: error writing 'x': No space left on device\n")
    answer = site.endpoint.ec2.create_snapshot(VolumeId=volume_id)
    assert not (site.home / "complaint").exists()
    assert answer["State"] == "pending"
    site.endpoint.advance(60)
    described = site.described(answer["SnapshotId"])
    assert described["State"] == "error"
    assert "No space left on device" in described["StateMessage"]
    assert site.copies() == []
    with refused("IncorrectState"):
        site.endpoint.create_volume(SnapshotId=answer["SnapshotId"])
    site.endpoint.ec2.delete_snapshot(SnapshotId=answer["SnapshotId"])


def test_a_directory_that_cannot_be_written_fails_the_snapshot(site: Site) -> None:
    site.snapshots.rmdir()
    site.snapshots.write_text("not a directory")
    snapshot_id = site.begin(site.endpoint.available())
    described = site.described(snapshot_id)
    assert described["State"] == "error"
    assert "Not a directory" in described["StateMessage"]


def test_an_endpoint_killed_while_it_copies_fails_the_snapshot(site: Site) -> None:
    volume_id = site.endpoint.available()
    (site.disk(volume_id) / "x").write_text("x")
    kept = site.whole(volume_id)
    (site.home / "hold").touch()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(site.endpoint.ec2.create_snapshot, VolumeId=volume_id)
        eventually(lambda: len((site.home / "calls").read_text().splitlines()) == 2)
        site.endpoint.post("/flush")
        site.endpoint.stop(signal.SIGKILL)
        assert answer.exception() is not None
        (site.home / "hold").unlink()
    (site.snapshots / ".new-snap-1").mkdir()
    with Endpoint.started(*site.arguments()) as second:
        assert not (site.snapshots / ".new-snap-1").exists()
        second.advance(60)
        snapshots = second.ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]
        states = {item["SnapshotId"]: item["State"] for item in snapshots}
        assert states.pop(kept) == "completed"
        assert list(states.values()) == ["error"]
        assert site.copies() == [kept]


def test_a_copy_of_a_snapshot_holds_what_that_holds(site: Site) -> None:
    volume_id = site.endpoint.available()
    (site.disk(volume_id) / "x").write_text("before")
    snapshot_id = site.whole(volume_id)
    (site.disk(volume_id) / "x").write_text("after")
    ec2 = site.endpoint.ec2
    asked = {"SourceRegion": "eu-west-1", "SourceSnapshotId": snapshot_id}
    again = ec2.copy_snapshot(**asked)["SnapshotId"]
    ec2.delete_snapshot(SnapshotId=snapshot_id)
    site.endpoint.advance(2)
    assert site.described(again)["State"] == "completed"
    assert site.copies() == [again]
    assert (site.snapshots / again / "x").read_text() == "before"


def test_a_copy_stays_while_a_volume_made_from_it_has_no_disk(site: Site) -> None:
    first = site.endpoint.available()
    (site.disk(first) / "x").write_text("x")
    snapshot_id = site.whole(first)
    second = site.endpoint.available(SnapshotId=snapshot_id)
    third = site.endpoint.available(SnapshotId=snapshot_id)
    site.endpoint.ec2.delete_snapshot(SnapshotId=snapshot_id)
    assert site.copies() == [snapshot_id]
    # What was made from a snapshot holds the same before it is ever used.
    copied = site.whole(second)
    assert (site.snapshots / copied / "x").read_text() == "x"
    site.disk(second)
    site.endpoint.ec2.delete_volume(VolumeId=third)
    site.endpoint.advance(1)
    assert site.endpoint.volume(second)["State"] == "available"
    assert site.copies() == [copied]


def test_nothing_is_copied_without_a_directory(strict: Endpoint) -> None:
    snapshot_id = strict.ec2.create_snapshot(VolumeId=strict.available())["SnapshotId"]
    strict.advance(2)
    described = strict.ec2.describe_snapshots(SnapshotIds=[snapshot_id])["Snapshots"][0]
    assert described["State"] == "completed"


def test_disks_and_directory_need_each_other(tmp_path: Path) -> None:
    assert run("serve", "--port", "0", "--snapshots", str(tmp_path)).wait(timeout=30) == 3
    assert run("serve", "--port", "0", "--disks", str(tmp_path)).wait(timeout=30) == 3
