"""Real server processes for the tests, with a clock that stands until it is moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from endpoint import CIDR, Endpoint, Network

# So slow that time passes only when a test says so.
STANDING = "0.000001"
NO_THROTTLE = ["--setting", "throttle_factor=0"]


@pytest.fixture(scope="session")
def strict_server() -> Iterator[Endpoint]:
    """The strict layer, without throttling."""
    with Endpoint.started("--time-scale", STANDING, *NO_THROTTLE) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def plain_server() -> Iterator[Endpoint]:
    """Moto alone."""
    with Endpoint.started("--plain") as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def strict_network(strict_server: Endpoint) -> Network:
    """A bootstrapped region of the strict endpoint."""
    return strict_server.bootstrap(CIDR)


@pytest.fixture(scope="session")
def plain_network(plain_server: Endpoint) -> Network:
    """A bootstrapped region of plain Moto."""
    return plain_server.bootstrap(CIDR)


@pytest.fixture
def strict(strict_server: Endpoint, strict_network: Network) -> Iterator[Endpoint]:
    """The strict endpoint, with settings and faults as they were afterwards."""
    before = strict_server.get("/settings")
    strict_server.network = strict_network
    strict_server.post("/reset")
    yield strict_server
    strict_server.patch("/settings", before)
    strict_server.post("/reset")


@pytest.fixture(params=["strict", "plain"])
def either(request: pytest.FixtureRequest) -> Endpoint:
    """Each kind of endpoint in turn, for what must work on both."""
    endpoint: Endpoint = request.getfixturevalue(f"{request.param}_server")
    endpoint.network = request.getfixturevalue(f"{request.param}_network")
    if request.param == "strict":
        endpoint.post("/reset")
    return endpoint


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    """Where an endpoint of the test keeps its state."""
    return tmp_path / "kept" / "aws.state"
