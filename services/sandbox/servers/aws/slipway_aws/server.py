"""Puts Moto, the strict layer and the control API together and serves them."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

# How often the loop looks whether it has been told to stop.
STOP_CHECK_S = 0.1


@dataclass
class Options:
    """How to serve."""

    host: str = "127.0.0.1"
    port: int = 5000
    plain: bool = False
    state: Path | None = None
    state_mode: str = "sync"
    time_scale: float = 1.0
    settings: dict[str, float] = field(default_factory=dict)
    # Patterns of the directories in which node agents keep volumes.
    disks: list[str] = field(default_factory=list)
    # Where copies of them are kept for snapshots; without it there are none.
    snapshots: Path | None = None


def prepare_environment(plain: bool) -> None:
    """Configure Moto, before it is imported: it reads its environment then.

    Nothing may be fetched from anywhere, and the credentials are only there
    so that no library looks for real ones.
    """
    os.environ.update(
        AWS_EC2_METADATA_DISABLED="true",
        AWS_ACCESS_KEY_ID="sandbox",
        AWS_SECRET_ACCESS_KEY="sandbox",
        AWS_DEFAULT_REGION="us-east-1",
    )
    os.environ.pop("AWS_PROFILE", None)
    if not plain:
        os.environ.update(
            MOTO_AMIS_PATH=str(Path(__file__).with_name("amis.json")),
            MOTO_ENABLE_AMI_VALIDATION="true",
            MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION="true",
        )


def serve(options: Options) -> None:
    """Serve until SIGTERM or SIGINT."""
    prepare_environment(options.plain)
    from .app import Application, build_world

    world = None if options.plain else build_world(options)
    application = Application(world)
    server = _listen(options, application)
    if world is not None and world.store is not None:
        world.store.start()
    # Moto's catalogues live for ever: the collector need not look at them again.
    gc.collect()
    gc.freeze()
    _stop_on_signal(server)
    address = f"http://{options.host}:{server.server_port}"
    mode = "plain" if options.plain else "strict"
    print(json.dumps({"listening": address, "mode": mode, "pid": os.getpid()}), flush=True)
    try:
        server.serve_forever(poll_interval=STOP_CHECK_S)
    finally:
        if world is not None and world.store is not None:
            world.store.close()
    # Taking Moto's catalogues apart object by object would take a second.
    logging.shutdown()
    os._exit(0)


def _listen(options: Options, application: Any) -> Any:
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    class QuietHandler(MotoRequestHandler):
        """Moto's handler without a line of log for every request."""

        def log_request(self, *_: object) -> None:
            """Calls are in the journal."""

        def connection_dropped(self, *_: object) -> None:
            """Close at once; the client would wait for an answer otherwise."""
            self.close_connection = True

    try:
        server: Any = make_server(
            options.host,
            options.port,
            application,
            threaded=True,
            request_handler=QuietHandler,
        )
    except (OSError, SystemExit) as error:
        # Werkzeug leaves with a message of its own when the port is taken.
        log.error("cannot listen on %s:%s: %s", options.host, options.port, error)
        sys.exit(2)
    server.daemon_threads = True
    return server


def _stop_on_signal(server: Any) -> None:
    def stop(*_: object) -> None:
        # shutdown() waits for the loop, which this very thread is running.
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
