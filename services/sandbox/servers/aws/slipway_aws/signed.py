"""When a request says that it was signed: what is too old, or from the future, AWS refuses before it looks at anything else.

Real time, and not the endpoint's own: a signature is made by the clock of another machine.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from .errors import AwsError

FORM = "%Y%m%dT%H%M%SZ"

# How far a signature may be off, by service.
TOLERANCE = {"ec2": timedelta(minutes=15), "route53": timedelta(minutes=5)}


def refusal(service: str, signed: str | None, now: datetime) -> AwsError | None:
    """What AWS answers to a request that was signed at that time; nothing if it is fit to be answered."""
    if signed is None:
        return None
    try:
        at = datetime.strptime(signed, FORM).replace(tzinfo=UTC)
    except ValueError:
        return AwsError("IncompleteSignature", "Date must be in ISO-8601 'basic format'.")
    tolerance = TOLERANCE[service]
    if abs(now - at) <= tolerance:
        return None
    if service == "ec2":
        return AwsError("RequestExpired", "Request has expired.")
    minutes = int(tolerance.total_seconds()) // 60
    if at < now:
        earliest = (now - tolerance).strftime(FORM)
        words = f"Signature expired: {signed} is now earlier than {earliest}"
        return AwsError("SignatureDoesNotMatch", f"{words} ({now.strftime(FORM)} - {minutes} min.)")
    latest = (now + tolerance).strftime(FORM)
    words = f"Signature not yet current: {signed} is still later than {latest}"
    return AwsError("SignatureDoesNotMatch", f"{words} ({now.strftime(FORM)} + {minutes} min.)")
