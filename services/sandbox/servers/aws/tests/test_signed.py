"""Requests that were signed by a clock that is wrong."""

from __future__ import annotations

import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
from endpoint import Endpoint

ASK = b"Action=DescribeVolumes&Version=2016-11-15"


def answered(endpoint: Endpoint, service: str, minutes: float) -> tuple[int, str]:
    """Status and body of the answer to a request that was signed so long from now."""
    at = datetime.now(UTC) + timedelta(minutes=minutes)
    scope = f"test/{at:%Y%m%d}/eu-west-1/{service}/aws4_request"
    path, body = ("/", ASK) if service == "ec2" else ("/2013-04-01/hostedzone", None)
    request = urllib.request.Request(f"{endpoint.url}{path}", body)
    request.add_header("Host", f"{service}.eu-west-1.amazonaws.com")
    request.add_header("X-Amz-Date", f"{at:%Y%m%dT%H%M%SZ}")
    request.add_header(
        "Authorization",
        f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host;x-amz-date, Signature=0",
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize(
    ("service", "minutes"), [("ec2", -14), ("ec2", 14), ("route53", -4), ("route53", 4)]
)
def test_a_clock_may_be_off_by_a_little(strict: Endpoint, service: str, minutes: float) -> None:
    status, body = answered(strict, service, minutes)
    assert status == 200, body


@pytest.mark.parametrize(
    ("service", "minutes", "status", "words"),
    [
        ("ec2", -16, 400, "RequestExpired"),
        ("ec2", 16, 400, "RequestExpired"),
        ("route53", -6, 403, "Signature expired"),
        ("route53", 6, 403, "Signature not yet current"),
    ],
)
def test_what_is_signed_at_another_time_is_refused(
    strict: Endpoint, service: str, minutes: float, status: int, words: str
) -> None:
    found, body = answered(strict, service, minutes)
    assert found == status and words in body, body
