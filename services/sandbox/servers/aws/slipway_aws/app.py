"""The WSGI application. Import this only after the environment is prepared."""

from __future__ import annotations

from typing import Any

import moto.ec2.urls
import moto.route53.urls
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.exceptions import NotFound

from . import moto_patches, transitions
from .calls import DROP_KEY, Gated
from .clock import Clock
from .contents import Contents
from .control import PREFIX, Control
from .ec2_groups import StrictEC2
from .route53 import StrictRoute53
from .server import Options
from .settings import Settings
from .state import Store, load
from .world import World


class Application:
    """Control API, or Moto with or without the strict layer."""

    def __init__(self, world: World | None) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._control = Control(world)
        self._strict = world is not None

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ.get("PATH_INFO", "")
        if path == PREFIX or path.startswith(f"{PREFIX}/"):
            return self._control(environ, start_response)
        if self._strict and path.startswith("/moto-api"):
            # Moto's own control API knows nothing of what the layer remembers.
            return NotFound("use /_control")(environ, start_response)
        answer = self._moto(environ, _Held(environ, start_response))
        if environ.get(DROP_KEY):
            close = getattr(answer, "close", None)
            if close is not None:
                close()
            # The server takes this for a client that has gone and says nothing.
            raise ConnectionResetError("the sandbox drops this answer")
        return answer


class _Held:
    """Passes the status line on, unless the answer is to be dropped."""

    def __init__(self, environ: dict[str, Any], start_response: Any) -> None:
        self._environ = environ
        self._start_response = start_response

    def __call__(self, status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
        if self._environ.get(DROP_KEY):
            return lambda _: None
        return self._start_response(status, headers, *rest)


def build_world(options: Options) -> World:
    """Install the strict layer into Moto and take over a state file."""
    settings = Settings()
    settings.change(options.settings)
    world = World(settings, Clock(options.time_scale))
    if options.snapshots is not None:
        world.contents = Contents(options.disks, options.snapshots)
    moto_patches.install()
    transitions.install(world)
    Gated.world = world
    moto.ec2.urls.url_paths = {"{0}/": StrictEC2.dispatch}
    moto.route53.urls.url_paths = {
        path: StrictRoute53.dispatch for path in moto.route53.urls.url_paths
    }
    if options.state is not None:
        options.state.parent.mkdir(parents=True, exist_ok=True)
        load(options.state, world)
        world.store = Store(options.state, world, options.state_mode == "sync")
    return world
