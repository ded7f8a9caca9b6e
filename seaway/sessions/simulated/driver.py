"""The driver of a simulated session: it holds the simulation, the turns of user threads, values, sizes and costs."""

from __future__ import annotations

import secrets
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import simpy

from core.controller import live_view
from core.model import Computation, spans
from core.record import LiveLook, Look, increment
from sim.simulation import Simulation

from ...graph import Signature
from ...wording import plural
from ..replaced import warn
from .port import SimPort
from .pricing import Costs, SimulatedPricing
from .simpy_processes import Steps, driven, may_wait
from .sizes import Sizes
from .turns import ThreadTurns, TurnThread
from .values import values_of

if TYPE_CHECKING:
    from ...dashboard import LiveSource
    from ...trace import Trace


# --- progress ---------------------------------------------------------------------------------------------------------

PATIENCE = 2.0  # seconds before it is shown
STEP = 0.25


class Progress:
    """`show`: None shows it only in a terminal or a notebook."""

    def __init__(self, simulation: Simulation, show: bool | None) -> None:
        self._sim = simulation
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if seen() if show is None else show:
            self._thread = threading.Thread(target=self._work, name="seaway-progress", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        began, last = time.monotonic(), -1
        if self._over.wait(PATIENCE):
            return
        from tqdm import tqdm

        with tqdm(bar_format="simulated {desc}", leave=False, file=sys.stderr) as line:
            while not self._over.wait(STEP):
                gangs = len(self._sim.trace)
                if self._sim.now == last:
                    continue  # the user's own code is running
                last = self._sim.now
                rate = gangs / (time.monotonic() - began)
                line.set_description_str(f"{last / 1e6:,.3f} ms, {gangs:,} gangs, {rate:,.0f} a second")

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()


def seen() -> bool:
    if "ipykernel" in sys.modules:
        return True
    stream: Any = sys.stderr
    return bool(stream is not None and stream.isatty())


MOST, SAID = 100_000, 10  # rows of a table in one look; the simulated controller's last words in it


class SimDriver:
    def __init__(
        self, simulation: Simulation, *, values: Any, sizes: Any, costs: Costs, seed: int, progress: bool | None
    ) -> None:
        self.simulation = simulation
        self.turns = ThreadTurns(simulation)
        self.price_of = SimulatedPricing(costs, simulation)
        self._values = values_of(values)
        self._sizes = Sizes(sizes, simulation, self._values, seed)
        self._progress = Progress(simulation, progress)
        self._nonces = 0
        self._identity = secrets.token_hex(8)  # of its trace, for those who look again and again
        setup = simulation.setup
        hosts, devices = plural(setup.cluster.hosts, "host"), plural(setup.cluster.devices, "device")
        profile = f"profile {simulation.profile.name} ({simulation.profile.status})"
        self.title = f"simulated cluster {setup.name}: {hosts}, {devices}; {profile}"

    @property
    def env(self) -> simpy.Environment:
        return self.simulation.env

    def join(self, name: str, weight: int, priority: int) -> SimPort:
        return SimPort(self.simulation.client(name, weight, priority), self.turns, self._values)

    def price(self, signature: Signature) -> Computation:
        return self.price_of(signature)

    def nonce(self) -> str:
        """A name that tells two checkpoint saves apart. A count, so that repeated simulations agree."""
        self._nonces += 1
        return f"{self._nonces:016x}"

    def costs(self) -> list[dict[str, Any]]:
        return self.price_of.table()

    def spawn(self, name: str, work: Callable[[], None]) -> TurnThread:
        return self.turns.spawn(name, work)

    def joined(self, thread: TurnThread) -> None:
        may_wait(self.env, f"for {thread.thread.name}")
        self.turns.joined(thread)

    def drive(self, name: str, steps: Steps) -> Any:
        return driven(steps, name, self.turns)

    def now(self) -> int:
        return self.simulation.now

    def sleep(self, nanoseconds: int) -> None:
        may_wait(self.env, "sleep")
        self.turns.until(self.simulation.now + nanoseconds, f"{threading.current_thread().name} sleeps")

    def trace(self) -> Trace:
        from ...trace import Trace

        return Trace.of_simulation(self.simulation)

    def policies(self) -> Mapping[str, str]:
        return live_view(self.simulation.controller).policies()

    def live_source(self, over: Callable[[], bool]) -> LiveSource:
        from ...dashboard import RunningSession

        self.turns.visited = True
        about = "simulation", self.title, self.simulation.setup
        return RunningSession(*about, visit=self.turns.visit, look=self._looked, over=over)

    def _looked(self, request: Look) -> LiveLook:
        sim = self.simulation
        cursor, view = request.cursor_of(self._identity, MOST), live_view(sim.controller)
        members = spans.union(*(island.members for island in view.islands))
        return LiveLook(
            self._identity, 0, sim.now, view, increment(sim.trace, cursor), members,
            said=tuple(text for _, text in sim.told[-SAID:]),
        )  # fmt: skip

    def stop(self) -> None:
        self.turns.stop()

    def close(self) -> None:
        self._progress.close()
        self.turns.stop()
        self.turns.end()
        if unknown := self._sizes.unknown():
            warnings.warn(unknown, stacklevel=2)
        warn(self.simulation.replaced)
