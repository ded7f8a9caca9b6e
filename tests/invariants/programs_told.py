"""Checks that a client that asked when its program is compiled is told so exactly once, unless it takes the program
back or is gone."""

from __future__ import annotations

from .checker_base import Checker
from .observations import ClientLost, Observation, ProgramAwaited, ProgramTakenBack, ProgramToldSeen


class ProgramsTold(Checker):
    name = "every program is told of"
    sees = (ProgramAwaited, ProgramTakenBack, ProgramToldSeen, ClientLost)

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], int] = {}  # (client, program) -> when it was registered

    def saw(self, seen: Observation, now: int) -> None:
        match seen:
            case ProgramAwaited(client=client, program=program):
                if (client, program) in self._open:
                    self.fail(f"program {program} of client {client} was registered twice")
                self._open[client, program] = now
            case ProgramToldSeen(client=client, program=program) | ProgramTakenBack(client=client, program=program):
                if (client, program) not in self._open:
                    self.fail(f"client {client} was told of program {program}, which it does not await")
                del self._open[client, program]
            case ClientLost(client=lost):
                self._open = {key: since for key, since in self._open.items() if key[0] != lost}
            case _:
                pass

    def at_rest(self, now: int) -> None:
        for (client, program), since in self._open.items():
            self.fail(f"client {client} was never told of program {program}, which it registered at {since}")
