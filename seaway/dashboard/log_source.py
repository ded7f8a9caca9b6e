"""An event log as the source of a page: a controller replays it to any moment, and says what waited then, and why.

Neighbours: `looking`, what a source does; `core.record.eventlog`; `seaway.trace.trace_source`, the same of a trace,
which knows times and no reasons.
"""

import threading
from pathlib import Path

from core.controller import Controller, live_view
from core.record import Diverged, LiveView, Log, LogError, Trace, replayed

from .. import machines
from ..errors import SeawayError
from .looking import RecordedSource


class LogSource(RecordedSource):
    """An event log. It is replayed once for its trace, and again to the moments that somebody asks for."""

    def __init__(self, path: Path, *, partial: bool = False, policy: str = "") -> None:
        """Raises SeawayError if it is no log that can be replayed here."""
        from backend.server import eventlogs, policy_from

        self._machine_of = eventlogs.machine_of
        trace = Trace()
        try:
            self._log: Log = eventlogs.read(path, partial=partial)
            self._policy = policy_from(policy) if policy else eventlogs.policy_of(self._log.about)
            machine = self._fresh(trace)
            for _ in replayed(self._log, machine):
                pass
            cluster = machine.cluster  # in the end: it may have grown
        except LogError as error:
            raise SeawayError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
        except Diverged as diverged:
            raise SeawayError(
                f"{path} does not replay: its event {diverged.index} leads to other commands here; `seaway replay` "
                f"shows the difference"
            ) from None
        entries, islands, start = self._log.entries, machines.of_setup(cluster).islands, self._log.about.start
        ends = entries[-1].now if entries else start
        super().__init__("log", f"{path}: {cluster.describe()}", trace, islands, start, lambda: ends)
        self._lock = threading.Lock()
        self._machine, self._index = machine, len(self._log.entries)

    def _fresh(self, trace: Trace | None = None) -> Controller:
        return self._machine_of(self._log.about, policy=self._policy, trace=trace)

    def at(self, time: int) -> LiveView | None:
        """Replay the log to this time, from its start if the last moment asked for was later."""
        entries = self._log.entries
        with self._lock:
            if self._index and entries[self._index - 1].now > time:
                self._machine, self._index = self._fresh(), 0
            while self._index < len(entries) and entries[self._index].now <= time:
                entry = entries[self._index]
                self._machine.handle(entry.event, entry.now)
                self._index += 1
            return live_view(self._machine)
