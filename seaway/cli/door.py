"""`seaway door`: JAX programs run through Seaway unchanged. It prints the variables that turn that on."""

import argparse
import getpass
import logging
import os
import sys
from pathlib import Path
from typing import Any

from backend.auth import AccessRefused, Rules, place_of, read
from backend.door import ServedCluster, run_cluster_door, run_door, variables
from backend.process_title import show_as
from backend.scratch_folder import ScratchFolder

from ..errors import SeawayError
from ..telemetry import door_spans_of
from ..units import nbytes
from . import door_simulation

ALLOWED_TO_ONESELF = ("AllocateBuffer",)  # jnp.empty: shows what this process's user left in its memory


def add(commands: Any) -> None:
    door = commands.add_parser(
        "door", help="serve unmodified JAX programs, which find it through three variables of their environment"
    )
    option = door.add_argument
    option(
        "--listen", default="", metavar="ADDRESS",
        help="unix:PATH, which only this user may open, or HOST:PORT on this machine's loopback, which any of its "
        "users may (default: a socket in $XDG_RUNTIME_DIR, or in a new temporary folder)",
    )  # fmt: skip
    option(
        "--devices", type=int, metavar="N",
        help="make N CPU devices (default: the devices there are); with --connect or --simulate, give each program N "
        "devices of each of its islands (default: all)",
    )  # fmt: skip
    _add_limits(option)
    option(
        "--connect", default="", metavar="CONTROLLER",
        help="serve the devices of the cluster whose controller has this address, as grpc://head:29000",
    )  # fmt: skip
    for each, words in (
        ("--token-file", "a file with the cluster's token"),
        ("--ca", "PEM file, for mutual TLS"),
        ("--cert", "PEM file, for mutual TLS"),
        ("--key", "PEM file, for mutual TLS"),
    ):
        option(each, default="", metavar=each[2:].upper(), help=f"with --connect: {words}")
    door_simulation.add(door)
    for each, words in (
        ("--islands", "whose devices programs get: i0, or i0,i1, or all; each is a slice (default: any one island)"),
        ("--name", "what programs are called in the cluster's status and traces (default: this user's name)"),
    ):
        option(each, default="", metavar=each[2:].upper(), help=f"with --connect or --simulate: {words}")
    for each, least, words in (
        ("--weight", 1, "their share, where the policy has shares"),
        ("--priority", 0, "a higher one goes first, where the policy has these"),
    ):
        option(each, type=int, default=least, help=f"with --connect or --simulate: {words} (%(default)s)")
    option(
        "--wait", type=float, default=10.0, metavar="SECONDS",
        help="with --connect: how long to wait for the controller at the start (%(default)g)",
    )  # fmt: skip
    option("--verbose", action="store_true", help="log what happens, and what programs wait for")
    door.set_defaults(run=_door)


def _add_limits(option: Any) -> None:
    """What programs may do, and use."""
    option(
        "--allow-custom-call", action="append", default=[], metavar="NAME",
        help="a foreign function that programs may call besides the built-in list; may be repeated",
    )  # fmt: skip
    option(
        "--trust-programs", action="store_true",
        help="compile programs in the door's own process: one that breaks the compiler ends the door, and all sessions",
    )  # fmt: skip
    option(
        "--check-seconds", type=float, default=Rules().seconds,
        help="how long the compilation of a program may take, in seconds (%(default)g)",
    )  # fmt: skip
    option(
        "--check-memory", type=int, default=0,
        help="bytes that the compilation of a program may use; 0: what the machine has",
    )  # fmt: skip
    option(
        "--callback-seconds", type=float, default=Rules().callback_seconds,
        help="how long a program waits for a Python function of its process that it calls, in seconds (%(default)g); "
        "on a cluster, an option of agents",
    )  # fmt: skip
    option(
        "--memory-per-session", metavar="SIZE",
        help="what the arrays of one program may take, as '8GiB' (default: half of the machine's memory; on "
        "accelerators, what they have)",
    )  # fmt: skip
    option(
        "--persist", type=Path, metavar="FOLDER",
        help="a folder below which programs may have arrays saved and restored (Orbax with "
        "ENABLE_PATHWAYS_PERSISTENCE=1); with --connect, hosts do it, so they need --checkpoints as well",
    )  # fmt: skip


def _door(given: argparse.Namespace) -> int:
    most = door_simulation.MOST if given.simulate else 1024
    if given.devices is not None and not 0 < given.devices <= most:
        raise SeawayError(f"--devices {given.devices}: give a number from 1 to {most}")
    _check_belonging(given)
    if given.check_seconds <= 0 or given.check_memory < 0 or given.callback_seconds <= 0:
        raise SeawayError("--check-seconds and --callback-seconds must be more than 0, and --check-memory at least 0")
    if given.persist is not None:
        given.persist = given.persist.absolute()
        if not given.connect and not given.persist.is_dir():
            raise SeawayError(f"--persist {given.persist}: there is no such folder")
    memory = None
    if given.memory_per_session is not None:
        memory = nbytes(given.memory_per_session, "--memory-per-session")
    folder, path = (None, None) if given.listen else _socket_path()
    try:
        _serve(given, door_simulation.listening(given.listen or f"unix:{path}", "--listen"), memory)
    finally:
        if folder is not None:
            folder.cleanup()
    sys.stdout.flush()
    os._exit(0)  # threads that wait for programs of clients that are gone need not end


def _serve(given: argparse.Namespace, address: str, memory: int | None) -> None:
    more = (*given.allow_custom_call, *(ALLOWED_TO_ONESELF if address.startswith("unix:") else ()))
    rules = Rules(more, given.check_seconds, given.check_memory, callback_seconds=given.callback_seconds)
    cluster = _cluster(given) if given.connect else None
    simulated = door_simulation.prepared(given, given.name or _user(), address) if given.simulate else None
    show_as("door", sys.argv[2:])
    logging.basicConfig(
        level=logging.INFO if given.verbose else logging.WARNING, format="%(asctime)s %(name)s: %(message)s"
    )
    if cluster is not None:
        spans = door_spans_of()
        try:
            watch = None if spans is None else spans.watch
            run_cluster_door(address, cluster, more=more, persist=given.persist, ready=_say, watch=watch)
        finally:
            if spans is not None:
                spans.close()
    elif simulated is not None:
        door_simulation.serve(simulated, given.trace, rules, memory, _say)
    else:
        run_door(
            address, devices=given.devices, rules=rules, trusted=given.trust_programs, memory=memory,
            persist=given.persist, ready=_say,
        )  # fmt: skip


def _cluster(given: argparse.Namespace) -> ServedCluster:
    if given.wait <= 0:
        raise SeawayError(f"--wait {given.wait:g}: a time is more than 0 seconds")
    try:
        place = place_of(given.connect)
        access = read(given.token_file, given.ca, given.cert, given.key)
    except AccessRefused as refused:
        raise SeawayError(f"--connect {given.connect}: {refused}") from None
    return ServedCluster(
        place, access, given.devices or 0, given.islands, given.name or _user(), given.weight, given.priority,
        given.wait,
    )  # fmt: skip


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an account without a name
        return "jax"


def _check_belonging(given: argparse.Namespace) -> None:
    """Refuses options that mean something only with others that are not given."""
    if given.connect and given.simulate:
        raise SeawayError(
            f"--connect {given.connect} --simulate {given.simulate}: a door has one cluster; leave one of them out"
        )
    for options, needed, here in (
        (("token_file", "ca", "cert", "key"), "a door to a cluster: give --connect", given.connect),
        (door_simulation.OPTIONS, "a door that simulates: give --simulate", given.simulate),
        (("persist",), "a door to devices: leave --simulate out", not given.simulate),
        (
            ("islands", "name"), "a door to a cluster, or one that simulates: give --connect or --simulate",
            given.connect or given.simulate,
        ),
    ):  # fmt: skip
        for option in options:
            if getattr(given, option) and not here:
                raise SeawayError(f"--{option.replace('_', '-')} is for {needed}, too")
    if given.weight < 1:
        raise SeawayError(f"--weight {given.weight}: a share is a whole number of at least 1")


def _socket_path() -> tuple[ScratchFolder | None, Path]:
    """In the user's runtime folder; in a temporary one where there is none, it has capital letters, or a door listens
    there already."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.access(runtime, os.W_OK):
        path = Path(runtime) / "seaway-door.sock"
        if not path.exists() and runtime == runtime.lower():
            return None, path
    folder = ScratchFolder("door")
    return folder, Path(folder.name) / "door.sock"


def _say(address: str, name: str = "") -> None:
    """`name`: of programs there, if there are others."""
    known = f" as {name!r}" if name else ""
    print(f"A JAX program runs through this door{known} if it finds in its environment:\n", flush=True)
    for variable, value in variables(address).items():
        print(f"export {variable}={value}", flush=True)
    print(flush=True)
