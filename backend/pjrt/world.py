"""The collective world of an epoch, which one process joins and leaves repeatedly; and the numbers of its devices.

JAX has one backend in a process, and a world is a property of the backend. To change worlds, the process drops the
backend with all its arrays and compiled code, and makes another; `store` copies arrays to host memory before.

A host that is the only member has no world to join. JAX has no public way to join a coordination service elsewhere
without member 0 starting another, so `_connect` uses JAX's internals; a test shows when that breaks.
"""

from __future__ import annotations

import gc
import importlib
import logging
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import jax
import numpy as np
from jax.extend.backend import clear_backends
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from core.model import Layout, Place, canonical, virtual_index

from ..coordination import Overtaken, RendezvousMember
from ..devices import DeviceAbout, WorldSpec
from . import jax_errors
from .gloo import GlooConnections

log = logging.getLogger("seaway.pjrt")
Device = Any  # jax.Device, which has no types
Wait = TypeVar("Wait", "RendezvousMember", "_Meeting")

LEFT = {"worlds": 4, "meetings": 8}  # how many that are over may still be there; then the process restarts
JOIN_S = 120  # seconds until all members have joined
LEAVE_S = 2
SWEEP_S = 5.0  # seconds between checks whether a dropped backend is gone, once nothing runs on it any more
SLOW_S = 600.0  # seconds after which it is reported that one is still there


class NotJoined(Exception):
    """This process could not join a world; it can join another."""


class WorldMembership:
    """This process's world. It changes in the enqueueing thread only, under `lock`."""

    def __init__(self) -> None:
        jax.config.update("jax_enable_recoverability", True)  # type: ignore[no-untyped-call]
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.generation = 0  # of the backend: code compiled under another one is void
        self.ready = False
        self.world: WorldSpec | None = None
        self.joining: WorldSpec | None = None
        self.devices: dict[int, Device] = {}  # of all members, by their numbers in the cluster
        self.mine: tuple[int, ...] = ()  # this host's
        self._numbers: dict[Device, int] = {}
        self._shardings: dict[Layout, Sharding] = {}
        self.by_layout: dict[Layout, Any] = {}  # what `device_arrays` has worked out for this world
        self._here: dict[Place, tuple[int, ...]] = {}
        # of the collective world of which this process is a member
        self._shield: CoordinationRelay | None = None
        self._meeting: _Meeting | None = None
        self._gloo: GlooConnections | None = None
        self._wanted = -1  # the newest epoch
        self._wait: RendezvousMember | _Meeting | None = None  # what a join waits for, and can leave
        self._waiting = threading.Lock()
        self._old: list[weakref.ref[Any]] = []  # backends of worlds that are over, and may still be there
        self._meetings = 0  # that are over, and still wait for members

    # --- this host ------------------------------------------------------------------------------------------

    @staticmethod
    def about(memory: int) -> DeviceAbout:
        local = in_order(jax.local_devices())
        first = local[0]
        if not memory:
            stats = first.memory_stats() or {}
            memory = int(stats.get("bytes_limit", 0))
        platform = "cuda" if first.platform == "gpu" else first.platform
        return DeviceAbout(platform, first.device_kind, len(local), memory)

    def same_backend(self, world: WorldSpec) -> bool:
        """Whether this world can use the current backend. After a world that did not form, it cannot."""
        return not world.address and self._shield is None and (self.ready or not self.generation)

    def leave(self, stuck: Sequence[Any]) -> None:
        """Drops the backend; nothing else may keep its arrays. `stuck`: arrays that are still being computed. Then
        the backend stays until they are ready, since ending it would wait for them."""
        self.ready = False
        self.generation += 1
        backends = list({id(each.client): each.client for each in self.devices.values()}.values())
        old = [weakref.ref(backend) for backend in backends]
        awaited = list(stuck)
        if awaited:
            self._leave_behind(_until_there, awaited, backends)
        del backends
        self._old += old
        for each in old:
            self._watch(each)
        self.devices, self._numbers, self._shardings, self.by_layout = {}, {}, {}, {}
        if self._gloo is not None:
            self._gloo.end(awaited)
            self._gloo = None
        if self._shield is not None:
            if _disconnect():
                self._shield.close()
            elif self._meeting is not None:
                with self._waiting:
                    self._meetings += 1
                self._leave_behind(self._meeting_over, self._meeting)
            self._shield = self._meeting = None
        clear_backends()  # type: ignore[no-untyped-call]
        self._sweep()
        self._bound()

    def _bound(self) -> None:
        """Lets no more than so many worlds be there besides the next one. What only waits to be swept may go first."""
        for _ in range(round(SWEEP_S)):
            self._old = [each for each in self._old if each() is not None]
            if len(self._old) < LEFT["worlds"] and self._meetings < LEFT["meetings"]:
                return
            time.sleep(1.0)
            self._sweep()
        raise RuntimeError("too many worlds are left behind with gangs that do not end; this process restarts")

    def _meeting_over(self, meeting: _Meeting) -> None:
        meeting.over.wait()
        with self._waiting:
            self._meetings -= 1

    def _leave_behind(self, wait: Callable[..., object], *arguments: Any) -> None:
        """Keeps `arguments` alive in a thread until `wait` ends, and no longer: each backend has some 130 threads."""

        def run(*given: Any) -> None:
            wait(*given)
            del given
            with self.lock:
                self._sweep()

        threading.Thread(target=run, args=arguments, name="left behind", daemon=True).start()

    def _watch(self, backend: weakref.ref[Any]) -> None:
        """Sweeps until a backend is gone: what ends with a world (copies, saves) fills JAX's caches again."""

        def run() -> None:
            told, pause, began = False, 1.0, time.monotonic()
            while backend() is not None:
                time.sleep(pause)
                pause = SWEEP_S
                with self.lock:
                    self._sweep()
                if not told and time.monotonic() - began > SLOW_S:
                    told = True
                    log.warning("a world that is over is still in memory after %d s, with its threads", SLOW_S)

        threading.Thread(target=run, name="sweep", daemon=True).start()

    @staticmethod
    def _sweep() -> None:
        jax.clear_caches()  # type: ignore[no-untyped-call]
        gc.collect()

    def want(self, epoch: int) -> None:
        """Sets the epoch that is wanted; a wait for another epoch's members ends. From any thread."""
        with self._waiting:
            self._wanted, wait = epoch, self._wait
        if wait is not None:
            wait.leave()

    def join(self, world: WorldSpec) -> None:
        """Joins a world; blocks until all members have. Raises NotJoined, or Overtaken if another epoch is wanted."""
        if self._wanted not in (-1, world.epoch):
            raise Overtaken
        self.joining = world
        try:
            self._join(world)
        except (OSError, RuntimeError) as error:  # of connections, and JAX's own
            raise NotJoined(jax_errors.text_of(error)) from error
        finally:
            self.joining = self._wait = None
        self.mine = tuple(world.devices[world.me])
        self.world, self.ready = world, True
        self.changed.notify_all()

    def _join(self, world: WorldSpec) -> None:
        if world.address:
            rank = world.hosts.index(world.me)
            service = self._may_wait(world, RendezvousMember(world.address, rank)).wait(JOIN_S)
            self._shield = CoordinationRelay(service)
            self._meeting = _Meeting(self._shield.address, rank, len(world.hosts))
            self._may_wait(world, self._meeting).wait(JOIN_S)
            pairs = len(world.devices[world.me]) * sum(map(len, world.devices.values()))
            self._gloo = GlooConnections(world.listen, world.lease, pairs)
            with self._gloo.used_by_jax(_state().client, rank):
                self.devices = _by_number(world)
        else:
            self.devices = _alone(world)
        self._numbers = {device: number for number, device in self.devices.items()}
        self._shardings, self._here, self.by_layout = {}, {}, {}

    def _may_wait(self, world: WorldSpec, wait: Wait) -> Wait:
        with self._waiting:
            self._wait = wait
            if self._wanted not in (-1, world.epoch):
                wait.leave()
        return wait

    # --- numbers of devices ---------------------------------------------------------------------------------

    def number_of(self, device: Device) -> int:
        return self._numbers[device]

    def here(self, place: Place) -> tuple[int, ...]:
        """Which of its devices are this host's."""
        found = self._here.get(place)
        if found is None:
            found = self._here[place] = tuple(n for n in self.mine if virtual_index(place, n) >= 0)
        return found

    def devices_of(self, place: Place) -> tuple[Device, ...]:
        """All of them, also those of other hosts, in the order of the place. Raises LookupError."""
        missing = [number for number in place.devices() if number not in self.devices]
        if missing:
            raise LookupError(f"device {missing[0]} is not in this host's world any more")
        return tuple(self.devices[number] for number in place.devices())

    def alone(self, place: Place) -> bool:
        """Whether no other host has a device of this place."""
        return len(self.here(place)) == place.size

    def reaches(self, layout: Layout) -> bool:
        """Whether all devices of this layout are in this world."""
        return all(device in self.devices for device in layout.place.devices())

    def sharding(self, layout: Layout) -> Any:
        """A layout's sharding: one object for all layouts that put the same on each device."""
        found = self._shardings.get(layout)
        if found is None:
            plain = canonical(layout)
            found = self._shardings.get(plain)
            if found is None:
                found = self._shardings[plain] = self._named(plain)
            self._shardings[layout] = found
        return found

    def _named(self, layout: Layout) -> NamedSharding:
        devices = np.array(self.devices_of(layout.place))
        names = tuple(f"m{axis}" for axis in range(len(layout.mesh)))
        mesh = Mesh(devices.reshape(layout.mesh or (1,)), names or ("m",), axis_types=_auto(len(names) or 1))
        dims = [tuple(names[axis] for axis in axes) or None for axes in layout.sharding.dims]
        return NamedSharding(mesh, PartitionSpec(*dims))  # type: ignore[no-untyped-call]


def _auto(axes: int) -> tuple[AxisType, ...]:
    return (AxisType.Auto,) * axes


def in_order(devices: Iterable[Device]) -> list[Device]:
    """A host's devices in the cluster's order: row by row if they have coordinates (TPU), else in JAX's order."""

    def key(device: Device) -> tuple[Any, ...]:
        coordinates = tuple(getattr(device, "coords", None) or ())
        return (*coordinates, getattr(device, "core_on_chip", None) or 0, device.id)

    return sorted(devices, key=key)


def _alone(world: WorldSpec) -> dict[int, Device]:
    return _paired(world.devices[world.me], in_order(jax.local_devices()), world.me)


def _by_number(world: WorldSpec) -> dict[int, Device]:
    by_process: dict[int, list[Device]] = {}
    for device in jax.devices():
        by_process.setdefault(device.process_index, []).append(device)
    processes = _processes(world)
    found: dict[int, Device] = {}
    for host, process in zip(world.hosts, processes, strict=True):
        found |= _paired(world.devices[host], in_order(by_process.get(process, [])), host)
    return found


def _processes(world: WorldSpec) -> Sequence[int]:
    """JAX's process index of each member. A TPU slice numbers its hosts itself, so each tells its index."""
    if jax.default_backend() != "tpu":
        return range(len(world.hosts))
    client = _state().client
    me = world.hosts.index(world.me)
    client.key_value_set(f"seaway/process/{me}", str(jax.process_index()))
    asked = (client.blocking_key_value_get(f"seaway/process/{rank}", JOIN_S * 1000) for rank in range(len(world.hosts)))
    return [int(answer) for answer in asked]


def _paired(numbers: Sequence[int], devices: Sequence[Device], host: int) -> dict[int, Device]:
    if len(numbers) != len(devices):
        raise RuntimeError(f"host {host} has {len(devices)} devices, but the cluster has {len(numbers)} for it")
    return dict(zip(numbers, devices, strict=True))


def _until_there(arrays: list[Any], backends: list[Any]) -> None:
    """Drops both as soon as nothing runs on the backends any more."""
    while arrays:
        with suppress(Exception):  # errors do not matter: the world is over
            arrays[-1].block_until_ready()
        arrays.pop()
    backends.clear()


# --- JAX's internals ------------------------------------------------------------------------------------------


def _state() -> Any:
    return importlib.import_module("jax._src.distributed").global_state


class _Meeting:
    """JAX's own wait for all members. All have arrived, so it is short, unless a member or the service has just
    died. It is in a thread that can be left behind. JAX would end the process after a timeout, so the timeout is
    practically infinite, and the relay stays open."""

    def __init__(self, address: str, rank: int, members: int) -> None:
        self._address, self._rank, self._members = address, rank, members
        self._changed = threading.Condition()
        self._client: Any = None
        self._error: Exception | None = None
        self._left = False
        self.over = threading.Event()  # the thread has ended
        threading.Thread(target=self._connect, name="meeting", daemon=True).start()

    def wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._client or self._error or self._left, seconds)
            if self._client is None:
                overtaken, self._left = self._left, True
                if overtaken:
                    raise Overtaken("a newer epoch has begun")
                raise self._error or TimeoutError(
                    f"not all {self._members} members of the world at {self._address} arrived within {seconds:g} s"
                )
            state = _state()
            state.client, state.process_id, state.num_processes = self._client, self._rank, self._members
            state.coordinator_address = self._address

    def leave(self) -> None:
        with self._changed:
            self._left = True
            self._changed.notify_all()

    def _connect(self) -> None:
        try:
            self._meet()
        finally:
            self.over.set()

    def _meet(self) -> None:
        client = error = None
        try:
            inside: Any = importlib.import_module("jaxlib._jax")
            client = inside.get_distributed_runtime_client(
                self._address, self._rank, init_timeout=FOREVER_S, heartbeat_timeout=FOREVER_S,
                shutdown_timeout=LEAVE_S, shutdown_on_destruction=False, use_compression=True,
            )  # fmt: skip
            client.connect()
        except Exception as raised:
            client, error = None, raised
        with self._changed:
            if not self._left:
                self._client, self._error = client, error
                self._changed.notify_all()
                return
        if client is not None:  # the others have arrived after this process left
            _say_goodbye(client)


def _disconnect() -> bool:
    """Disconnects from the service. False: there was no connection yet, and JAX still waits for members."""
    state = _state()
    client, state.client = state.client, None
    state.process_id, state.num_processes, state.coordinator_address = 0, 1, None
    if client is not None:
        _say_goodbye(client)
    return client is not None


def _say_goodbye(client: Any) -> None:
    try:
        client.shutdown()
    except Exception as error:  # the service and other members may be gone
        log.info("left a world that had ended: %s", error)


# --- a relay to the coordination service ---------------------------------------------------------------------------

FOREVER_S = 10**8  # three years
DIAL_S = 10.0
PORTION = 1 << 16


class CoordinationRelay:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._service = (host.strip("[]"), int(port))
        self._lock = threading.Lock()
        self._ended = False
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name="shield", daemon=True).start()

    def close(self) -> None:
        """Closes all connections; call it after JAX has disconnected."""
        with self._lock:
            self._ended = True
            ends, self._open = [self._listener, *self._open], []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                from_jax, _ = self._listener.accept()
            except OSError:
                return
            if not self._keep(from_jax):
                return
            try:
                to_service = socket.create_connection(self._service, DIAL_S)
            except OSError:
                continue  # stay open and silent
            to_service.settimeout(None)
            if self._keep(to_service):
                for ends in ((from_jax, to_service), (to_service, from_jax)):
                    threading.Thread(target=_pass_on, args=ends, name="shield", daemon=True).start()

    def _keep(self, end: socket.socket) -> bool:
        with self._lock:
            if not self._ended:
                self._open.append(end)
                return True
        end.close()
        return False


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while portion := source.recv(PORTION):
            target.sendall(portion)
