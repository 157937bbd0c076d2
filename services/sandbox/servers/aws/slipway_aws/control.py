"""The control API under ``/_control/``: faults, clock, settings, machines, counts.

It is for tests and for the node agent; nothing that talks to AWS uses it. All
bodies are JSON. Works on plain Moto as well, as far as there is anything to say.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from moto.ec2.models import ec2_backends
from werkzeug.exceptions import BadRequest, HTTPException, NotFound
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from . import __version__
from .faults import KINDS
from .transitions import die
from .views import disk, machine
from .world import World

PREFIX = "/_control"


class Control:
    """The WSGI application of the control API."""

    def __init__(self, world: World | None) -> None:
        self._world = world
        self._routes = Map(
            [
                Rule(f"{PREFIX}{path}", methods=[method], endpoint=endpoint)
                for method, path, endpoint in self._table()
            ],
            strict_slashes=False,
        )

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        request = Request(environ)
        try:
            endpoint, arguments = self._routes.bind_to_environ(environ).match()
            response = _json(endpoint(request, **arguments))
        except HTTPException as error:
            response = _json({"error": error.description}, error.code or 500)
        except (ValueError, TypeError, KeyError) as error:
            response = _json({"error": str(error)}, 400)
        return response(environ, start_response)

    def _table(self) -> Iterator[tuple[str, str, Callable[..., Any]]]:
        yield "GET", "/health", self._health
        yield "GET", "/instances", self._instances
        if self._world is None:
            return
        yield "POST", "/instances/<instance_id>/kill", self._kill
        yield "POST", "/instances/<instance_id>/isolate", self._isolate
        yield "POST", "/instances/<instance_id>/repair", self._repair
        yield "GET", "/volumes", self._volumes
        yield "POST", "/volumes/<volume_id>/age", self._age
        yield "GET", "/faults", self._faults
        yield "POST", "/faults", self._add_fault
        yield "DELETE", "/faults", self._clear_faults
        yield "GET", "/faults/<fault_id>", self._one_fault
        yield "DELETE", "/faults/<fault_id>", self._remove_fault
        yield "GET", "/counters", self._counters
        yield "GET", "/journal", self._journal
        yield "GET", "/settings", self._settings
        yield "PATCH", "/settings", self._change_settings
        yield "GET", "/clock", self._clock
        yield "PATCH", "/clock", self._change_clock
        yield "GET", "/timeline", self._timeline
        yield "POST", "/flush", self._flush
        yield "POST", "/reset", self._reset

    @property
    def world(self) -> World:
        """The strict layer's state; only asked for by its own routes."""
        assert self._world is not None, "routes of the strict layer exist only with it"
        return self._world

    def _health(self, request: Request) -> Any:
        answer: dict[str, Any] = {
            "ok": True,
            "mode": "plain" if self._world is None else "strict",
            "version": __version__,
            "pid": os.getpid(),
        }
        store = getattr(self._world, "store", None)
        if store is not None:
            answer["state_file"] = {"write_s": round(store.seconds, 4), "bytes": store.size}
        return answer

    def _instances(self, request: Request) -> Any:
        wanted = request.args.get("region")
        with Settled(self._world):
            return {
                "instances": [
                    machine(instance)
                    for account, regions in list(ec2_backends.items())
                    for region, backend in list(regions.items())
                    if wanted in (None, region)
                    for instance in backend.all_instances()
                ]
            }

    def _kill(self, request: Request, instance_id: str) -> Any:
        with Settled(self.world):
            instance = _find(instance_id)
            if instance.state == "terminated":
                raise BadRequest(f"{instance_id} is terminated already")
            self.world.note_change((instance.owner_id, instance.region_name))
            die(self.world, instance, _body(request).get("how", "terminate"))
            self.world.version += 1
            answer = machine(instance)
        self.world.keep(self.world.version)
        return answer

    def _isolate(self, request: Request, instance_id: str) -> Any:
        return self._mark(instance_id, slipway_isolated=bool(_body(request).get("isolated", True)))

    def _repair(self, request: Request, instance_id: str) -> Any:
        return self._mark(instance_id, slipway_isolated=False, slipway_impaired=False)

    def _mark(self, instance_id: str, **flags: bool) -> Any:
        with Settled(self.world):
            instance = _find(instance_id)
            for name, value in flags.items():
                setattr(instance, name, value)
            self.world.version += 1
            return machine(instance)

    def _volumes(self, request: Request) -> Any:
        wanted = request.args.get("region")
        with Settled(self.world):
            return {
                "volumes": [
                    disk(volume, region)
                    for _, region, backend in self.world.ec2_places()
                    if wanted in (None, region)
                    for volume in backend.volumes.values()
                ]
            }

    def _age(self, request: Request, volume_id: str) -> Any:
        """Time passes for the modifications of one volume; all others share the clock."""
        seconds = float(_body(request)["seconds"])
        if seconds < 0:
            raise BadRequest("the clock never goes back")
        with Settled(self.world):
            for _, region, backend in self.world.ec2_places():
                volume = backend.volumes.get(volume_id)
                if volume is None:
                    continue
                for modification in volume.modifications:
                    modification.slipway_at -= seconds
                self.world.version += 1
                answer = disk(volume, region)
                break
            else:
                raise NotFound(f"no volume {volume_id}")
        self.world.keep(self.world.version)
        return answer

    def _faults(self, request: Request) -> Any:
        return {"faults": [fault.as_dict() for fault in self.world.faults.all()], "kinds": KINDS}

    def _add_fault(self, request: Request) -> Any:
        fault = self.world.faults.add(_body(request))
        if fault.kind == "stale":
            with self.world.lock:
                self.world.note_all()
        return fault.as_dict()

    def _one_fault(self, request: Request, fault_id: str) -> Any:
        for fault in self.world.faults.all():
            if fault.id == fault_id:
                return fault.as_dict()
        raise NotFound(f"no fault {fault_id}")

    def _remove_fault(self, request: Request, fault_id: str) -> Any:
        fault = self.world.faults.remove(fault_id)
        if fault is None:
            raise NotFound(f"no fault {fault_id}")
        return fault.as_dict()

    def _clear_faults(self, request: Request) -> Any:
        return {"faults": [fault.as_dict() for fault in self.world.faults.clear()]}

    def _counters(self, request: Request) -> Any:
        return {"calls": self.world.ledger.counters(request.args.get("region"))}

    def _journal(self, request: Request) -> Any:
        since = int(request.args.get("since", "0"))
        ledger = self.world.ledger
        # Read first: no call that comes meanwhile is behind the number and left out.
        latest = ledger.serial
        return {"latest": latest, "calls": ledger.journal(since, request.args.get("action"))}

    def _settings(self, request: Request) -> Any:
        return self.world.settings.as_dict()

    def _change_settings(self, request: Request) -> Any:
        with self.world.lock:
            lagged = self.world.longest_lag() > 0
            self.world.settings.change(_body(request))
            if not lagged:
                self.world.note_all()
            return self.world.settings.as_dict()

    def _clock(self, request: Request) -> Any:
        return {"now": self.world.now(), "scale": self.world.clock.scale}

    def _change_clock(self, request: Request) -> Any:
        body = _body(request)
        unknown = set(body) - {"scale", "advance_s"}
        if unknown:
            raise BadRequest(f"unknown fields {sorted(unknown)}; known: scale, advance_s")
        if "scale" in body:
            self.world.clock.set_scale(float(body["scale"]))
        if "advance_s" in body:
            with self.world.lock:
                self.world.clock.advance(float(body["advance_s"]))
                self.world.settle()
        return self._clock(request)

    def _timeline(self, request: Request) -> Any:
        with Settled(self.world):
            now = self.world.now()
            return {
                "pending": [
                    {"name": item.name, "target": item.target, "in_s": round(item.due - now, 3)}
                    for item in self.world.timeline.pending()
                ]
            }

    def _flush(self, request: Request) -> Any:
        if self.world.store is None:
            raise BadRequest("there is no state file")
        self.world.store.flush()
        return self._health(request)

    def _reset(self, request: Request) -> Any:
        faults = self.world.faults.clear()
        self.world.ledger.reset()
        with self.world.lock:
            self.world.throttle.reset()
        return {"faults": [fault.as_dict() for fault in faults]}


class Settled:
    """Holds the lock of a world that is up to date; does nothing without one."""

    def __init__(self, world: World | None) -> None:
        self._world = world

    def __enter__(self) -> None:
        if self._world is not None:
            self._world.lock.acquire()
            self._world.settle()

    def __exit__(self, *_: object) -> None:
        if self._world is not None:
            self._world.lock.release()


def _find(instance_id: str) -> Any:
    for regions in list(ec2_backends.values()):
        for backend in list(regions.values()):
            instance = backend.get_instance_by_id(instance_id)
            if instance is not None:
                return instance
    raise NotFound(f"no instance {instance_id}")


def _body(request: Request) -> dict[str, Any]:
    if not request.get_data():
        return {}
    body = request.get_json(force=True)
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    return body


def _json(body: Any, status: int = 200) -> Response:
    text = json.dumps(body, indent=1, default=str)
    return Response(text + "\n", status=status, content_type="application/json")
