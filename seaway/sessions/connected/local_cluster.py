"""`sw.local`: starts a cluster on this machine and opens a session on it.

The controller runs in a thread of this process, and the hosts' agents are child processes. A child ends when its
standard input closes, so none outlives this process, however it ends.
"""

from __future__ import annotations

import asyncio
import atexit
import copy
import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from backend.admin import Child, Supervisor, durations
from backend.client import Remote
from backend.devices import accelerators_here
from backend.scratch_folder import ScratchFolder
from backend.server import Server, looked
from backend.streams import LoopThread
from backend.wire import Described
from core.controller import ON_DEVICES, Bounds, Config
from core.model import Cluster as Topology

from ... import units
from ...errors import NotReady, nearest
from ...specs import whole
from ...units import Time
from ...wording import plural
from ..arguments import checked_live, checked_session, seconds_of
from ..replaced import said, warn
from ..session import Dispatch, Session, opened_live
from ..simulated import ConfigOptions, Policies, checked_config, policy_of, struct_of
from .driver import RealDriver

if TYPE_CHECKING:
    from ...dashboard import LiveSource
    from ...trace import Trace

T = TypeVar("T")
C = TypeVar("C", bound="LocalCluster")
log = logging.getLogger("seaway")
Platform = Literal["cpu", "cuda", "tpu", "timed"]
PLATFORMS = ("cpu", "cuda", "tpu", "timed")
AGENT = "backend.agent"
# Nobody knows how long a first step takes, so the hard bound on a wait is generous.
CONFIG = msgspec.structs.replace(ON_DEVICES, bounds=Bounds(hard=120))
GRACE = 5.0  # seconds for the controller to end
LOOK = 0.01  # seconds between checks that all hosts have joined
WATCH = 0.25  # seconds between checks that all agents are alive
_open: weakref.WeakSet[LocalDriver] = weakref.WeakSet()


def local(
    hosts: int = 1,
    devices_per_host: int = 1,
    *,
    islands: int = 1,
    policy: Policies = None,
    platform: Platform = "cpu",
    memory: int | str = 0,
    dispatch: Dispatch = "parallel",
    config: Config | ConfigOptions | None = None,
    timeout: Time = "1min",
    retries: int = 0,
    record: str | Path | None = None,
    live: bool | str = False,
) -> Session:
    """Open a session on real devices of this machine. Hosts are processes, which end with the session.

    hosts, devices_per_host, islands: how many of each. policy: as for `sw.simulate`; any object will do.
    platform: "cpu"; "cuda" or "tpu", one host with what this machine has; "timed", devices that only take the time that
    they are told. memory: what programs may use of each device, such as "2GiB"; 0: all there is.
    dispatch: "parallel", or "sequential" for the baseline. config: settings of the controller.
    timeout: for all of this to start. retries: how often a run that the cluster failed (a host died) is sent
    again, unless its program says otherwise. record: a file for the controller's log, which `seaway replay` runs again.
    live: serve a page that shows what goes on, and print its link; or the address for it, such as "127.0.0.1:29100".

        >>> double = sw.jit(lambda x: x * 2, devices=2)
        >>> with sw.local(hosts=1, devices_per_host=2):
        ...     print(np.asarray(double(np.float32([1, 2]))))
        [2. 4.]
    """
    for name, number in (("hosts", hosts), ("devices_per_host", devices_per_host), ("islands", islands)):
        if not whole(number):
            raise ValueError(f"sw.local({name}={number!r}): a whole number, at least 1")
    _check_platform(platform, hosts, islands)
    wait = seconds_of("sw.local", "timeout", timeout)
    checked_session("sw.local", dispatch, retries)
    checked_live("sw.local", live)
    if record is not None and not isinstance(record, str | Path):
        raise TypeError(f"sw.local(record={record!r}): the path of a file, such as 'run.log'")
    room = units.nbytes(memory, "sw.local: memory")
    file = Path(record) if record is not None else None
    settings = checked_config(struct_of(Config, config, "config", CONFIG))
    made = ClusterOptions(hosts, devices_per_host, islands, platform, room, policy_of(policy), settings, file)
    driver = _up(made, wait)
    return opened_live(Session(driver, dispatch=dispatch, retries=retries), live)


def _check_platform(platform: str, hosts: int, islands: int) -> None:
    if platform not in PLATFORMS:
        meant = {"gpu": "cuda", "nvidia": "cuda"}.get(str(platform).lower())
        near = f" (did you mean {meant!r}?)" if meant else nearest(str(platform), PLATFORMS)
        raise ValueError(f"sw.local(platform={platform!r}): 'cpu', 'cuda', 'tpu' or 'timed'{near}")
    if platform in ("cuda", "tpu") and (hosts > 1 or islands > 1):
        number = f"hosts={hosts}" if hosts > 1 else f"islands={islands}"
        raise ValueError(
            f"sw.local(platform={platform!r}, {number}): one process has all {platform} devices of a machine, so there "
            f"is one host here: leave {number} out, or start `seaway controller`, and `seaway agent` on each machine, "
            f"and sw.connect to it"
        )


class ClusterOptions(msgspec.Struct, frozen=True):
    """The options of one `sw.local` call."""

    hosts: int
    devices: int
    islands: int
    platform: str
    memory: int
    policy: Any
    config: Config
    record: Path | None


class LocalCluster:
    """A controller on the session's loop, and agents as child processes."""

    def __init__(self, made: ClusterOptions, loop: LoopThread) -> None:
        self.made, self.loop = made, loop
        self.cluster = _cluster(made)
        self._folder = ScratchFolder()
        self.server: Server = loop.do(self._begin())
        self.supervisor = Supervisor(self.server.children, lambda text: log.warning("local cluster: %s", text))

    async def _begin(self) -> Server:
        made = self.made
        server = Server(
            self.cluster,
            folder=Path(self._folder.name),
            policy=made.policy,
            config=made.config,
            platform=made.platform,
            record=made.record,
        )
        await server.start()
        return server

    def start_agents(self) -> None:
        """Start one process a host; or one process for all hosts if their devices are "timed"."""
        together = self.made.platform == "timed"
        for number in range(1 if together else self.cluster.hosts):
            self.supervisor.keep(self._start(number), partial(self._start, number))

    @property
    def agents(self) -> list[Child]:
        return self.supervisor.all

    def _start(self, number: int) -> Child:
        made, hosts = self.made, self.cluster.hosts
        words = [
            "--controller", self.server.address, "--name", f"agent-{number}", "--platform", made.platform,
            "--devices", str(made.devices), "--memory", str(made.memory), "--with-parent", "--checkpoints", "/",
        ]  # fmt: skip
        words += ["--hosts", str(hosts)] if made.platform == "timed" and hosts > 1 else ["--host", str(number)]
        return self.server.children.start(f"agent-{number}", AGENT, words, environment_of(made))

    async def watch(self) -> None:
        """Restart agents that die, under their names. The supervisor gives up one that never comes up."""
        while True:
            await asyncio.sleep(WATCH)
            await asyncio.to_thread(self.supervisor.look)

    def wait(self, timeout: float) -> None:
        """Wait until all islands run."""
        until = time.monotonic() + timeout
        while not self.visit(self.server.ready):
            for child in self.agents:
                if not child.alive:
                    raise NotReady(f"{child.name} of the local cluster {child.fate()} while it started: {child.tail()}")
            if self.server.failure.done():
                self.server.failure.result()
            if time.monotonic() > until:
                words = "; ".join(f"{child.name}: {child.tail() or 'says nothing'}" for child in self.agents)
                raise NotReady(f"the local cluster did not start within {timeout:g} s. {words}")
            time.sleep(LOOK)

    def visit(self, look: Callable[[], T]) -> T:
        """Look at the controller between two events."""
        with self.server.node.lock:
            return look()

    def end(self) -> None:
        """End the children, then the controller, which then need not wait for them."""
        self.supervisor.stop()
        self.server.children.end_all()
        try:
            self.loop.do(self.server.stop(), GRACE)
        except (TimeoutError, RuntimeError):
            pass  # while the interpreter exits, nothing can be awaited
        self._folder.cleanup()


class LocalDriver(RealDriver):
    """A real session that owns its controller and hosts."""

    files_here = True

    def __init__(self, title: str, cluster: LocalCluster, described: Described) -> None:
        server = cluster.server
        super().__init__(title, cluster.loop, server.address, server.access, described)
        self.server, self.cluster = server, cluster
        cluster.loop.loop.call_soon_threadsafe(server.failure.add_done_callback, self._controller_failed)
        _open.add(self)

    def _controller_failed(self, failed: asyncio.Future[None]) -> None:
        if not failed.cancelled():
            self.fail(failed.exception() or RuntimeError("the controller ended"))

    def introduce(self, remote: Remote) -> None:
        remote.node.near["controller"] = self.server.node

    def live_source(self, over: Callable[[], bool]) -> LiveSource:
        """The controller is in this process: it is looked at without a call."""
        from ...dashboard import RunningSession

        return RunningSession(
            "cluster", self.title, self.cluster.cluster, visit=self.cluster.visit, over=over,
            look=lambda request: looked(self.server, request),
        )  # fmt: skip

    def trace(self) -> Trace:
        return self.with_hosts(self.cluster.visit(lambda: copy.deepcopy(self.server.trace)))

    def recorded(self) -> Mapping[str, tuple[int, int]]:
        return self.cluster.visit(lambda: durations(self.server.trace))

    @property
    def agents(self) -> list[Child]:
        return self.cluster.agents

    def close(self) -> None:
        again = self.closed
        super().close()
        if not again:
            warn((None, about) for about in self.server.replaced)
            said(self.server.unrecorded())

    def leave(self) -> None:
        _open.discard(self)
        try:
            super().leave()
        finally:
            self.cluster.end()


def _up(made: ClusterOptions, timeout: float) -> LocalDriver:
    def driver(cluster: LocalCluster, described: Described) -> LocalDriver:
        cluster.loop.begin(cluster.watch())
        shape = cluster.cluster
        title = f"local cluster: {plural(shape.hosts, 'host')}, {plural(shape.devices, 'device')} ({made.platform})"
        return LocalDriver(title, cluster, described)

    return brought_up(partial(LocalCluster, made), timeout, driver)


def brought_up(
    make: Callable[[LoopThread], C], timeout: float, driver: Callable[[C, Described], LocalDriver]
) -> LocalDriver:
    """The driver of a cluster all of whose islands run; if that cannot be, nothing is left of it."""
    loop = LoopThread()
    cluster = None
    try:
        cluster = make(loop)
        cluster.start_agents()
        cluster.wait(timeout)
        return driver(cluster, Described(cluster.cluster, (cluster.made.platform,), cluster.server.lease, ""))
    except BaseException:
        if cluster is not None:
            cluster.end()
        loop.close()
        raise


def _cluster(made: ClusterOptions) -> Topology:
    """The cluster's topology. If no memory was given, CPU devices get equal shares of this machine's memory, and
    accelerators have what JAX says."""
    island: dict[str, object] = {
        "name": "i", "count": made.islands, "hosts": made.hosts, "devices_per_host": made.devices
    }  # fmt: skip
    room = made.memory
    if made.platform == "cpu" and not room:
        room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        room //= made.islands * made.hosts * made.devices
    if made.platform in ("cuda", "tpu"):
        island["kind"] = made.platform
        if not room and (about := accelerators_here(made.platform)) is not None:
            room = about.memory
    if room:
        island["memory"] = room
    return Topology.from_table({"island": [island]})


def environment_of(made: ClusterOptions) -> dict[str, str]:
    """The agents' environment: the number of devices, enough threads for collectives, and our setting of x64."""
    found = {}
    if made.platform == "cpu":
        count = f"--xla_force_host_platform_device_count={made.devices}"
        others = [
            word for word in os.environ.get("XLA_FLAGS", "").split() if not word.startswith(count.partition("=")[0])
        ]
        found = {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": " ".join([*others, count]),
            "NPROC": str(max(32, 2 * made.devices)),  # with fewer threads, many concurrent collectives hang
        }
    if "jax" in sys.modules:
        import jax  # another thread may be importing it: this waits

        config: Any = jax.config
        found["JAX_ENABLE_X64"] = str(int(config.jax_enable_x64))
    return found


@atexit.register
def _end_all() -> None:
    for driver in list(_open):
        try:
            driver.close()
        except Exception:
            pass  # the children end with this process anyhow
