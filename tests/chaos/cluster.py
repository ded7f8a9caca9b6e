"""Controller, agents and clients as docs/deployment.md starts them, each under a supervisor, on fixed ports.

They are processes of this machine, which reach each other through proxies (`network`), or each is on a machine of its
own (`machine_network`). A JAX program has a door of its own, as docs/door.md says: to the cluster, the door is the
client.
"""

from __future__ import annotations

import heapq
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from backend.door import variables

from .journal import Reader
from .machine_network import MachineNetwork
from .network import Network, Proxied, free_port
from .processes import Process, ProcessEnd, Usage, children_of, is_coordination, said_into, strays, usage
from .schedule import JAX_ROLES, Fault, Shape
from .watching import Watch

Named = tuple[str, tuple[int, ...]]  # a client's role, and the islands that it calls

GROWTH = 2  # hosts that a cluster gets at most while it runs
# a client for each island
ONE_ISLAND = ("train", "puts", "small", "reads", "given", "many", "saves", "jax")


def clients_of(
    islands: int, roles: tuple[str, ...] = ("train", "puts", "retry", "transfer", "jax")
) -> dict[str, Named]:
    found: dict[str, Named] = {}
    for role in roles:
        if role in ONE_ISLAND:
            found |= {f"{role}-{island}": (role, (island,)) for island in range(islands)}
        elif role == "retry":
            found["retry-0"] = (role, (0,))
        elif role in ("moves", "slices") or islands > 1:
            found[role] = (role, (0, 1) if islands > 1 else (0,))
    return found


class Cluster:
    """The cluster's processes: `started` is true after `start()`. Everything ends with `stop()`."""

    def __init__(
        self, folder: Path, shape: Shape, clients: dict[str, Named], devices: int = 2, patience: float = 60.0
    ) -> None:
        self.folder, self.shape, self.clients, self.devices = folder, shape, clients, devices
        self.patience = patience
        self.watch = Watch()
        self.network: Network = Proxied(folder, self.watch)
        self.processes: dict[str, Process] = {}
        self.readers: dict[str, Reader] = {}
        self.deaths: list[ProcessEnd] = []
        self._operators: list[subprocess.Popen[bytes]] = []  # commands of an operator that have not ended
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._counted = self.grown = 0
        self.port = free_port()
        self.pause_file = folder / "pause"
        (folder / "saved").mkdir(parents=True)

    # --- its processes ----------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.shape.machines:
            self.network = MachineNetwork(self.folder, self._names())
        self._add("controller", self._controller, self.port)
        for number in range(self.shape.agents):
            self._add(f"agent-{number}", self._agent(number), free_port())
        for name, (role, _) in self.clients.items():
            self.readers[name] = Reader(name, self.folder / f"client-{name}.jsonl")
            if role in JAX_ROLES:
                self._add(f"door-{name}", self._door(name))
                env = variables(self._socket(name)) | {"TF_CPP_MIN_LOG_LEVEL": "3"}
                self._add(f"client-{name}", lambda port, name=name: self._jax(name), env=env)  # type: ignore[misc]
            else:
                self._add(f"client-{name}", self._client(name), env={"JAX_PLATFORMS": "cpu"})
        self.watch.begin(self.network.listens("controller", self.port), self.network.token)

    def _names(self) -> list[str]:
        agents = [f"agent-{number}" for number in range(self.shape.agents)]
        return ["controller", *agents, *(f"client-{name}" for name in self.clients)]

    def _add(
        self, name: str, words: Callable[[int], list[str]], port: int = 0, env: dict[str, str] | None = None
    ) -> None:
        log, env = self.folder / f"{name}.log", self.network.env(name) | (env or {})
        self.processes[name] = Process(name, log, words, port, env, self.network.place(name))
        self.processes[name].start()

    def _controller(self, port: int) -> list[str]:
        shape, disk = self.shape, self.network.disk("controller")
        return [
            "seaway", "controller", "--bind", self.network.listens("controller", port), "--state", str(disk / "state"),
            "--lease", str(shape.lease), "--islands", str(shape.islands), "--hosts", str(shape.hosts),
            "--devices-per-host", str(self.devices), "--verbose",
            "--record", str(disk / "record"), *self.network.access(),
        ]  # fmt: skip

    def _agent(self, number: int) -> Callable[[int], list[str]]:
        together, name = self.shape.together, f"agent-{number}"
        trust = "--no-trust-clients" if self.shape.checked else "--trust-clients"

        def where(port: int) -> list[str]:
            if together > 1:  # each of its hosts has a port of its own
                return ["--host", str(number * together), "--hosts", str(together)]
            bind = self.network.listens(name, port)
            return ["--host", str(number), "--bind", bind, *self.network.advertised(number, port)]

        return lambda port: [
            "seaway", "agent", "--controller", self.network.controller(name, self.port), *where(port),
            "--name", f"host-{number}", "--platform", self.shape.platform,
            "--devices", str(self.devices), "--cache", str(self.network.disk(name) / "cache"),
            "--checkpoints", str(self.folder / "saved"), trust, "--verbose", *self.network.access(),
        ]  # fmt: skip

    def _client(self, name: str) -> Callable[[int], list[str]]:
        role, islands = self.clients[name]
        return lambda port: [
            "tests.chaos.clients", *self._loop(name), "--role", role, *self.network.access(),
            "--controller", self.network.controller(f"client-{name}", self.port),
            "--islands", ",".join(f"i{island}" for island in islands),
            "--patience", str(self.patience), *(["--timed"] if self.shape.platform == "timed" else []),
        ]  # fmt: skip

    def _loop(self, name: str) -> list[str]:
        """What all clients are told."""
        return [
            "--name", name, "--journal", str(self.folder / f"client-{name}.jsonl"), "--pause", str(self.pause_file),
            "--devices", str((self.shape.hosts - self.shape.spare) * self.devices),
            "--folder", str(self.folder / "saved"),
        ]  # fmt: skip

    def _socket(self, name: str) -> str:
        return f"unix:{self.folder / f'door-{name}.sock'}"

    def _door(self, name: str) -> Callable[[int], list[str]]:
        islands = ",".join(f"i{island}" for island in self.clients[name][1])
        return lambda port: [
            "seaway", "door", "--connect", self.network.controller(f"door-{name}", self.port),
            "--listen", self._socket(name), "--name", name, "--islands", islands, "--wait", str(self.patience),
            "--persist", str(self.folder / "saved"), "--verbose", *self.network.access(),
        ]  # fmt: skip

    def _jax(self, name: str) -> list[str]:
        islands = str(len(self.clients[name][1]))
        return ["tests.chaos.jax_clients", *self._loop(name), "--islands", islands]

    def coordination(self, island: int) -> int:
        """The coordination process of the island's last epoch, or 0 if there is none."""
        found = {}
        for pid in children_of(self.processes["controller"].pid):
            if is_coordination(pid):
                words = Path(said_into(pid)).stem.split("-")  # world-ISLAND-EPOCH
                if len(words) == 3 and words[1] == str(island):
                    found[int(words[2])] = pid
        return found[max(found)] if found else 0

    def islands_of(self, fault: Fault) -> set[int]:
        """The islands on which a fault may be noticed."""
        if fault.role == "link":
            # without a link to the controller, only that agent's island is in trouble
            one, other, _ = fault.link
            return set[int]().union(*(self._islands_at(end) for end in (one, other) if end != "controller"))
        return self._islands_at(fault.target)

    def _islands_at(self, target: str) -> set[int]:
        role, _, rest = target.partition("-")
        if role in ("agent", "peers", "checker"):
            return {min(int(rest) * self.shape.together // self.shape.hosts, self.shape.islands - 1)}
        if role == "coordination":
            return {int(rest)}
        return set() if role in ("client", "door") else set(range(self.shape.islands))

    # --- regular work -----------------------------------------------------------------------------------------

    def tick(self) -> None:
        while self._agenda and self._agenda[0][0] <= time.monotonic():
            heapq.heappop(self._agenda)[2]()
        for process in self.processes.values():
            if (death := process.tick()) is not None:
                self.deaths.append(death)
        for reader in self.readers.values():
            reader.read()

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self._counted += 1
        heapq.heappush(self._agenda, (time.monotonic() + seconds, self._counted, act))

    def until(self, over: Callable[[], object], seconds: float, pause: float = 0.02) -> bool:
        """Look again and again, with ticks in between. Returns False if it did not happen in time."""
        end = time.monotonic() + seconds
        while True:
            self.tick()
            if over():
                return True
            if time.monotonic() > end:
                return False
            time.sleep(pause)

    def call(self, name: str) -> object:
        """The call that a client is making just now."""
        return self.readers[name].open(self.processes[f"client-{name}"].pid)

    def good_since(self, when: float) -> list[str]:
        """Clients that have not had a good call that began after this time."""
        late = []
        for name, reader in self.readers.items():
            calls = reader.calls[-60:]
            if not any(call.good and call.begun > when and call.what != "connect" for call in calls):
                late.append(name)
        return late

    def paused_since(self, when: float) -> bool:
        return all(
            reader.paused.get(self.processes[f"client-{name}"].pid, 0.0) > when for name, reader in self.readers.items()
        )

    def pause(self, on: bool) -> None:
        if on:
            self.pause_file.touch()
        else:
            self.pause_file.unlink(missing_ok=True)

    def usages(self) -> dict[str, Usage]:
        found = {name: usage(process.pid) for name, process in self.processes.items()}
        held = {name: each for name, each in found.items() if each is not None}
        return held | {"processes without a parent": Usage(children=len(self.strays()))}

    def strays(self) -> list[int]:
        """Processes left behind by parents that are gone."""
        self._operators = [each for each in self._operators if each.poll() is None]
        return strays([*[each.pid for each in self.processes.values()], *[each.pid for each in self._operators]])

    def limit_files(self, names: Iterator[str] | list[str], on: bool) -> None:
        """Turn a limit on or off: these processes cannot write another byte to a file, as if the disk were full."""
        for name in names:
            process = self.processes[name]
            if process.alive:
                _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0 if on else hard, hard))

    def grow(self) -> bool:
        """The last island gets another host, and an agent of it starts. False: it has got enough by now."""
        if self.grown == GROWTH:
            return False
        shape, file = self.shape, self.folder / f"grown-{self.grown}.toml"
        more = [0] * (shape.islands - 1) + [self.grown + 1]
        file.write_text("".join(
            f'[[island]]\nname = "i{island}"\nhosts = {shape.hosts + extra}\ndevices_per_host = {self.devices}\n'
            for island, extra in enumerate(more)
        ))  # fmt: skip
        self.operate("grow", str(file))
        if self._operators[-1].wait(60):
            return False  # the controller is away
        number = shape.agents + self.grown
        self.grown += 1
        self._add(f"agent-{number}", self._agent(number), free_port())
        return True

    def operate(self, action: str, name: str) -> None:
        """As an operator does with a client or a host, one thing after another. It may be away just now, or the
        controller."""
        for command in self._operators:
            command.wait(60)
        words = [sys.executable, "-m", "seaway", action, self.network.controller("controller", self.port), name]
        wait = [] if action in ("uncordon", "grow") else ["--no-wait"]
        place = [*self.network.place("controller"), *words, *wait, *self.network.access()]
        with (self.folder / "operator.log").open("ab") as log:
            self._operators.append(subprocess.Popen(place, stdout=log, stderr=log))

    # --- the end ----------------------------------------------------------------------------------------------

    def stacks(self, names: list[str]) -> None:
        """Make all processes write their stacks into their logs. It ends agents and the controller."""
        for name in names:
            process = self.processes[name]
            process.signal(signal.SIGCONT)
            process.signal(signal.SIGUSR1 if name.startswith("client") else signal.SIGABRT)
        time.sleep(1.0)

    def stop(self) -> None:
        coordination = []
        if "controller" in self.processes:
            coordination = [pid for pid in children_of(self.processes["controller"].pid) if is_coordination(pid)]
        for operator in self._operators:
            operator.kill()
            operator.wait()
        for process in self.processes.values():
            process.quit()
        for pid in {*coordination, *self.strays()}:  # they end with their parent; a stopped one cannot
            if is_coordination(pid):
                os.kill(pid, signal.SIGKILL)
        self.watch.stop()
        self.network.close()
