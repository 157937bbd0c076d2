"""The way of every EC2 and Route 53 call through the strict layer.

In this order: when it was signed, faults that come before the work, throttling, then under the
world's lock whatever has fallen due and the work itself, then what takes long
(copies of disks), then the state file, then faults that come after the work. The
answer is always one that AWS could have given; an error inside Moto becomes an InternalError.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from moto.core.responses import ActionResult, BaseResponse

from .errors import AwsError
from .faults import Fault
from .ledger import READING, shortened
from .signed import refusal as untimely
from .world import World

log = logging.getLogger(__name__)

# Set in the WSGI environment when the connection is to be closed unanswered.
DROP_KEY = "slipway.drop"

Answer = tuple[int, dict[str, Any], Any]


@dataclass
class Call:
    """Who asks for what."""

    service: str
    action: str
    account: str
    region: str
    params: dict[str, Any]

    @property
    def mutating(self) -> bool:
        """Whether the call may change anything."""
        return not self.action.startswith(READING)

    @property
    def place(self) -> tuple[str, str]:
        """The (account, region) of the call."""
        return (self.account, self.region)


class Gated(BaseResponse):
    """Mixed into a Moto response class, sends its calls through the layer."""

    world: ClassVar[World]
    call: Call
    # The error code of the answer, if it is an error.
    failure: str | None = None
    # An older backend to answer a describe from.
    past: Any = None
    # Slow work that the answer has to wait for, but nobody else: done without the lock.
    afterwards: Callable[[], None] | None = None

    def call_action(self) -> Answer:
        """Do what a call asks for. Moto's entry point, once parameters are parsed."""
        action = self._get_action()
        if not action:
            return super().call_action()
        self.call = Call(
            service=str(self.service_name),
            action=action,
            account=self.current_account,
            region=self.region,
            params=dict(self.params),
        )
        started = time.monotonic()
        fault: list[Fault] = []
        answer = self._answer(super().call_action, fault)
        self._record(answer[0], time.monotonic() - started, fault)
        return answer

    def serialized(self, action_result: ActionResult) -> Answer:
        """Write a result; an error keeps its own HTTP status."""
        status, headers, body = super().serialized(action_result)
        error = action_result.result
        if isinstance(error, Exception):
            self.failure = getattr(error, "code", type(error).__name__)
            status = getattr(error, "status", status)
        return status, headers, body

    def _answer(self, work: Callable[[], Answer], fired: list[Fault]) -> Answer:
        try:
            self._look_at_time()
            self._strike_before(fired)
            self._take_tokens()
            answer, version = self._work(work)
            if self.afterwards is not None:
                self.afterwards()
                version = self.world.version
        except AwsError as error:
            return self._refusal(error)
        except NotImplementedError as error:
            # A 500 would make clients try again for nothing.
            return self._refusal(AwsError("UnsupportedOperation", str(error)))
        except Exception:
            log.exception("cannot answer %s:%s", self.call.service, self.call.action)
            return self._refusal(AwsError("InternalError", "An internal error has occurred."))
        self._strike_after(fired, version)
        return answer

    def _work(self, work: Callable[[], Answer]) -> tuple[Answer, int]:
        world = self.world
        with world.lock:
            world.settle()
            if self.call.mutating:
                self._note_change()
            else:
                self.past = self._looked_up_past()
            try:
                answer = work()
            finally:
                if self.call.mutating:
                    world.version += 1
            return answer, world.version

    def _note_change(self) -> None:
        if self.call.service == "ec2":
            self.world.note_change(self.call.place)

    def _looked_up_past(self) -> Any:
        if self.call.service != "ec2" or not self.call.action.startswith("Describe"):
            return None
        fault = self.world.faults.strike("stale", self.call)
        lag = fault.stale_s if fault else self.world.settings.describe_lag_s
        if lag <= 0:
            return None
        return self.world.history.as_of(self.call.place, self.world.now() - lag)

    def _strike_before(self, fired: list[Fault]) -> None:
        faults, call = self.world.faults, self.call
        if (delay := faults.strike("delay", call)) is not None:
            fired.append(delay)
            faults.wait(delay)
        if (dropped := faults.strike("drop_request", call)) is not None:
            fired.append(dropped)
            self._drop()
            raise AwsError("Dropped", "The connection is closed before the work.")
        if (failure := faults.strike("fail", call)) is not None:
            fired.append(failure)
            raise AwsError(failure.code, failure.message, failure.status)
        if (throttled := faults.strike("throttle", call)) is not None:
            fired.append(throttled)
            raise self._too_fast()

    def _strike_after(self, fired: list[Fault], version: int) -> None:
        faults, call = self.world.faults, self.call
        if call.mutating:
            self.world.keep(version)
        if (delay := faults.strike("delay", call, after=True)) is not None:
            fired.append(delay)
            faults.wait(delay)
        if (dropped := faults.strike("drop_reply", call)) is not None:
            fired.append(dropped)
            self._drop()

    def _look_at_time(self) -> None:
        refused = untimely(self.call.service, self.headers.get("X-Amz-Date"), datetime.now(UTC))
        if refused is not None:
            raise refused

    def _take_tokens(self) -> None:
        world = self.world
        with world.lock:
            factor = world.settings.throttle_factor
            if not world.throttle.admits(self.call, world.now(), factor):
                raise self._too_fast()

    def _too_fast(self) -> AwsError:
        if self.call.service == "route53":
            return AwsError("Throttling", "Rate exceeded", 400)
        return AwsError("RequestLimitExceeded", "Request limit exceeded.", 503)

    def _refusal(self, error: AwsError) -> Answer:
        status, headers, body = self.serialized(ActionResult(error))
        headers, body = self._enrich_response(headers, body)
        return status, headers, body

    def _drop(self) -> None:
        self.normalized_request.environ[DROP_KEY] = True

    def _record(self, status: int, seconds: float, fired: list[Fault]) -> None:
        failed = self.failure or (None if status < 400 else f"Http{status}")
        self.world.ledger.record(
            {
                "at": time.time(),
                "service": self.call.service,
                "action": self.call.action,
                "account": self.call.account,
                "region": self.call.region,
                "params": shortened(self.call.params),
                "result": failed or "ok",
                "status": status,
                "duration_ms": round(seconds * 1000, 1),
                "faults": [fault.id for fault in fired],
                "dropped": bool(self.normalized_request.environ.get(DROP_KEY)),
                "stale": self.past is not None,
            }
        )
