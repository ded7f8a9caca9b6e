"""The program of an agent: one host with real devices, or many timed hosts.

    seaway agent --controller HOST:PORT

It ends on SIGTERM, after it has been drained, or with its parent (`--with-parent`). An agent that the controller
has dismissed, because it was away too long, replaces itself by a new program under the same process id.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import grpc

from core.protocol import CONTROLLER

from ..admin import add_process_options, adder, become, begin_log, end_with_parent
from ..auth import Access, AccessRefused, PortTaken, add_options, place_of, read, rules_of
from ..devices import Devices
from ..node import CallError, HostClock, shifted
from ..process_title import show_as
from ..streams import collect_rarely, run
from .agent import Agent
from .agent_machine import TpuSeat, keep_what_is_freed, seat

log = logging.getLogger("seaway.agent")
PLATFORMS = ("auto", "cpu", "cuda", "tpu", "timed")
GRACE, AWAY = 20.0, 15.0  # seconds to be drained; of these, for arrays to move to other hosts
# seconds without a controller after which an ending agent is not drained; seconds between checks
ALONE, LOOK = 1.0, 0.1
SOON, EVERY = 1.0, 5.0  # seconds without an answer until this is reported, and reported again
AGAIN = 3  # internal exit status: restart
STARTED_OVER = "--started-over"  # internal option: it had these addresses before
PATIENCE = 120.0  # seconds for which it then waits for a port that was given to another socket meanwhile


def options() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="seaway agent", description="A host of a Seaway cluster: runs gangs of all clients on its devices."
    )
    add = adder(found)
    add("--controller", "where the controller listens", required=True, metavar="HOST:PORT")
    add("--name", "the agent's name, the same at each start; default: made from the host's name")
    add("--island", "the island to which it belongs; default: any that has room")
    add("--host", "the host number that it asks for; default: any on its island", -1)
    add("--rank", "instead of --host, its number within the island; default: TPU_WORKER_ID, if set", -1)
    add("--bind", "where it listens for other hosts and clients", "127.0.0.1:0", metavar="ADDRESS:PORT")
    advertise = "where others reach it, if not at --bind: in a container, or with --bind 0.0.0.0:PORT"
    add("--advertise", advertise, metavar="ADDRESS[:PORT]")
    which = "which devices: those that JAX finds, or `timed` ones, which only take time"
    add("--platform", which, "auto", choices=PLATFORMS)
    add("--devices", "number of devices, for cpu and timed", 0)
    add("--hosts", "for timed: number of hosts in this process", 1)
    add("--memory", "bytes of each device that programs may use; 0: what the platform reports", 0)
    add("--cache", "a folder that keeps compiled code between starts", metavar="FOLDER")
    shared = "a folder that all hosts see; clients may save and restore below it"
    add("--checkpoints", shared, metavar="FOLDER")
    local = "a folder on a local disk, for arrays that host memory has no room for (`host_disk`); default: /var/tmp"
    add("--spill", local, metavar="FOLDER")
    add_options(found)
    add("--token-file", "a file with the cluster's token")
    add_process_options(add)
    found.add_argument("--shift-clock", type=shifted, help=argparse.SUPPRESS)  # for tests: see `clock_sync`
    add(STARTED_OVER, argparse.SUPPRESS, False)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    chosen = options().parse_args(words)
    begin_log(chosen.verbose)
    signal.signal(signal.SIGTERM, _end_at_once)  # until `serve` has something to drain
    if chosen.with_parent:
        end_with_parent()
    keep_what_is_freed()
    code = 1
    try:
        check(chosen)
        access = read(chosen.token_file, chosen.ca, chosen.cert, chosen.key)
        prepare(chosen)
        code = run(serve(chosen, access, words))
    except (AccessRefused, CallError) as error:
        print(f"seaway agent: {_words(error, chosen.controller)}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        code = 130
    if code == AGAIN:
        again = [word for word in words if word != STARTED_OVER]
        become([sys.executable, "-m", "backend.agent", *again, STARTED_OVER])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # an orderly exit of a member of a collective world would wait for the others


def _end_at_once(*_: object) -> None:
    """Exits at once: there is nothing to drain yet, so it waits neither for JAX to start nor for the controller."""
    os._exit(0)


def _words(error: AccessRefused | CallError, controller: str) -> str:
    if not isinstance(error, CallError):
        return str(error)
    if error.code == grpc.StatusCode.UNAUTHENTICATED:
        return (
            f"the controller at {controller} refused our credentials: {error}. Give --token-file, the cluster's token"
        )
    if error.code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
        return (
            f"no controller answers at {controller}: is `seaway controller` running there, and is its port open to "
            f"this machine? (--controller HOST:PORT; with certificates: --ca, --cert, --key)"
        )
    return str(error)


def check(chosen: argparse.Namespace) -> None:
    """Refuses options that could never work, before anything is started. `chosen.controller` has a port afterwards."""
    try:
        chosen.controller = place_of(chosen.controller)
    except AccessRefused as refused:
        raise AccessRefused(f"--controller {chosen.controller}: {refused}, or head:29000") from None
    for option in ("hosts", "devices", "memory"):
        if (number := getattr(chosen, option)) < (least := int(option == "hosts")):
            raise AccessRefused(f"--{option} {number}: at least {least}")
    if chosen.hosts > 1:
        _check_together(chosen)


def _check_together(chosen: argparse.Namespace) -> None:
    if chosen.platform != "timed":
        raise AccessRefused(
            f"--hosts {chosen.hosts}: only timed devices can be those of several hosts in one process. Start an agent "
            "for each host, or add --platform timed"
        )
    for option, none in (("bind", ":0"), ("advertise", "")):
        address, _, port = getattr(chosen, option).rpartition(":")
        if port.isdigit() and int(port):
            raise AccessRefused(
                f"--{option} {address}:{port}: each of {chosen.hosts} hosts in one process needs a port of its own. "
                f"Leave the choice to them: --{option} {address}{none}"
            )


def prepare(chosen: argparse.Namespace) -> None:
    """Sets the environment that JAX must find when it is imported."""
    first, _, rest = os.environ.get("JAX_PLATFORMS", "").partition(",")
    if first == "proxy":  # set for programs that go through a door, and not for this one
        del os.environ["JAX_PLATFORMS"]
        if rest:
            os.environ["JAX_PLATFORMS"] = rest
    if chosen.platform in ("timed", "auto", "cuda", "tpu") and not (chosen.platform == "auto" and chosen.devices):
        if chosen.platform in ("cuda", "tpu"):
            os.environ["JAX_PLATFORMS"] = chosen.platform
        return
    if chosen.devices:
        os.environ.pop("JAX_NUM_CPU_DEVICES", None)  # JAX takes it before the flag below
    count = chosen.devices or 1
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # without it, more than 32 collectives under way hang
    os.environ.setdefault("NPROC", str(max(32, 2 * count)))
    flags = f"--xla_force_host_platform_device_count={count} --xla_cpu_collective_timeout_seconds=20"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()


def devices_of(chosen: argparse.Namespace) -> Devices:
    if chosen.platform == "timed":
        from ..devices import TimedDevices

        collect_rarely()
        return TimedDevices(chosen.devices or 1, chosen.memory)
    rules = rules_of(chosen)
    from ..pjrt import PjrtDevices

    kind: Callable[..., Devices] = PjrtDevices
    if rules is not None:
        from ..sandbox import CheckedDevices

        kind = partial(CheckedDevices, rules)
    collect_rarely()  # before there is a backend: when it is given up, its cycles must be found
    try:
        return kind(
            memory=chosen.memory, cache=cache_of(chosen.cache) if chosen.cache else None,
            checkpoints=Path(chosen.checkpoints).absolute() if chosen.checkpoints else None,
            spill=Path(chosen.spill).absolute() if chosen.spill else None, patience=chosen.callback_seconds,
        )  # fmt: skip
    except (RuntimeError, AssertionError) as error:  # JAX's errors when the platform is missing
        reason = (str(error) or "JAX finds none").splitlines()[0]
        raise AccessRefused(f"no {chosen.platform} device here: {reason}; --platform cpu works everywhere") from None


def cache_of(folder: str) -> Path | None:
    """The cache's folder; None if it cannot be written: an agent can work without a cache. (If the disk fills
    later, JAX reports it and goes on.)"""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(bytes(1 << 16))
    except OSError as error:
        log.warning("--cache %s: %s; compiled code is not kept", folder, error.strerror)
        return None
    return path


async def serve(chosen: argparse.Namespace, access: Access, words: Sequence[str]) -> int:
    show_as("agent", words)
    loop = asyncio.get_running_loop()
    over: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()

    def ended(reason: str, for_good: bool) -> None:
        loop.call_soon_threadsafe(over.put_nowait, (reason, for_good))

    count = chosen.hosts if chosen.platform == "timed" else 1
    clock = HostClock(chosen.shift_clock) if chosen.shift_clock else HostClock()
    agents = [_agent(chosen, access, ended, clock, number if count > 1 else -1) for number in range(count)]
    looking = asyncio.create_task(_report_silence(chosen.controller))
    try:
        for agent in agents:
            await _start(agent, PATIENCE if chosen.started_over else 0.0)
    finally:
        looking.cancel()
    leaving = _leave_when_told(loop, agents)
    hosts = [agent.host.host for agent in agents]
    show_as(f"agent host-{hosts[0]}" if count == 1 else f"agent hosts {hosts[0]}-{hosts[-1]}", words)
    print(f"hosts {', '.join(map(str, hosts))} at {agents[0].address}", flush=True)
    reason, for_good = await over.get()
    while for_good and not all(agent.ended for agent in agents):  # one of several hosts was drained
        reason, for_good = await over.get()
    for agent in agents:
        await agent.stop()
    if leaving.is_set():
        return 0
    if for_good:
        print(f"seaway agent: dismissed: {reason}", file=sys.stderr)
        return 0
    print(f"seaway agent: dismissed: {reason}; restarting", file=sys.stderr)
    return AGAIN


async def _start(agent: Agent, patience: float) -> None:
    """Starts it. The kernel may have given its port to an outgoing connection of any process, which ends sometime."""
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while True:
        try:
            await agent.start()
            return
        except PortTaken as taken:
            if loop.time() >= until:
                raise
            print(f"seaway agent: {taken}; still trying", file=sys.stderr, flush=True)
            await asyncio.sleep(EVERY)


async def _report_silence(address: str) -> None:
    """Reports regularly that the controller does not answer."""
    await asyncio.sleep(SOON)
    while True:
        print(f"seaway agent: no answer yet from a controller at {address}; still asking", file=sys.stderr, flush=True)
        await asyncio.sleep(EVERY)


def _agent(
    chosen: argparse.Namespace, access: Access, ended: Callable[[str, bool], None], clock: HostClock, number: int
) -> Agent:
    place = seat() if chosen.platform in ("auto", "tpu") and chosen.host < 0 else TpuSeat()
    rank = chosen.rank if chosen.rank >= 0 else place.rank
    name = chosen.name if number < 0 or not chosen.name else f"{chosen.name}-{number}"
    host = chosen.host if chosen.host < 0 or number < 0 else chosen.host + number
    return Agent(
        chosen.controller, devices_of(chosen), name=name, island=chosen.island or place.island, host=host, rank=rank,
        access=access, bind=chosen.bind, advertise=chosen.advertise, over=ended, clock=clock,
    )  # fmt: skip


async def _end_without_controller(agents: Sequence[Agent]) -> None:
    """Ends the process when it is to be drained but has no controller that could drain it."""
    loop = asyncio.get_running_loop()
    heard = loop.time()
    while not any(agent.ended for agent in agents):
        if any(agent.node.connected(CONTROLLER) for agent in agents):
            heard = loop.time()
        elif loop.time() - heard >= ALONE:
            log.warning("it was told to end, and no controller is connected that could drain it: it ends now")
            os._exit(0)
        await asyncio.sleep(LOOK)


def _leave_when_told(loop: asyncio.AbstractEventLoop, agents: Sequence[Agent]) -> asyncio.Event:
    leaving, alone = asyncio.Event(), list[asyncio.Task[None]]()

    def leave() -> None:
        if not leaving.is_set():
            leaving.set()
            for agent in agents:
                agent.leave("it was told to end", AWAY)
            loop.call_later(GRACE, os._exit, 1)
            alone.append(loop.create_task(_end_without_controller(agents)))

    loop.add_signal_handler(signal.SIGTERM, leave)
    return leaving
