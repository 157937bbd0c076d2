"""Command line: ``serve`` the endpoint, or ``bootstrap`` a region of it."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

from .bootstrap import Bootstrap, BootstrapError, bootstrap
from .server import Options, serve
from .settings import parse_assignment
from .state_error import StateError


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the result is the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    for noisy in ("werkzeug", "botocore", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    options = _parser().parse_args(arguments)
    return int(options.run(options) or 0)


def _serve(options: argparse.Namespace) -> int:
    if bool(options.disks) != (options.snapshots is not None):
        logging.error("--disks and --snapshots need each other")
        return 3
    if options.plain and options.state:
        logging.warning("plain Moto keeps no state: --state is ignored")
    try:
        serve(
            Options(
                host=options.host,
                port=options.port,
                plain=options.plain,
                state=None if options.plain else options.state,
                state_mode=options.state_mode,
                time_scale=options.time_scale,
                settings=dict(options.setting),
                disks=options.disks,
                snapshots=options.snapshots,
            )
        )
    except (ValueError, StateError) as error:
        logging.error("%s", error)
        return 3
    return 0


def _bootstrap(options: argparse.Namespace) -> int:
    wanted = Bootstrap(
        endpoint=options.endpoint,
        region=options.region,
        stack=options.stack,
        cidr=options.cidr,
        dns_suffix=options.dns_suffix,
        zones=options.zones.split(","),
        timeout_s=options.timeout,
    )
    try:
        print(json.dumps(bootstrap(wanted)))
    except BootstrapError as error:
        logging.error("%s", error)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slipway_aws", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="serve EC2 and Route 53"))
    _add_bootstrap(commands.add_parser("bootstrap", help="make sure that a region has a network"))
    return parser


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_serve)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000, help="0 takes a free one")
    parser.add_argument("--plain", action="store_true", help="Moto without the strict layer")
    parser.add_argument("--state", type=Path, help="keep everything in this file")
    parser.add_argument(
        "--state-mode",
        choices=("sync", "lazy"),
        default="sync",
        help="whether answers wait for the state file",
    )
    parser.add_argument("--time-scale", type=float, default=1.0, help="how fast time passes")
    parser.add_argument(
        "--setting",
        type=parse_assignment,
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="change a number of the strict layer (see GET /_control/settings)",
    )
    parser.add_argument(
        "--disks",
        action="append",
        default=[],
        metavar="PATTERN",
        help="directories in which node agents keep volumes; snapshots copy them",
    )
    parser.add_argument("--snapshots", type=Path, help="where the copies are kept")


def _add_bootstrap(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_bootstrap)
    parser.add_argument("--endpoint", required=True, help="URL of the endpoint")
    parser.add_argument("--region", required=True)
    parser.add_argument("--stack", required=True, help="id of the stack, kept as a tag")
    parser.add_argument("--cidr", required=True, help="addresses of the region's network")
    parser.add_argument("--dns-suffix", required=True, help="name of the hosted zone")
    parser.add_argument("--zones", default="a,b", help="letters of the zones to use")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds to wait in all")


if __name__ == "__main__":
    sys.exit(main())
