"""Shows a progress line for long simulations: simulated time, gangs run, and gangs a second."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from sim.simulation import Simulation

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
