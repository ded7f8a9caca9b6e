"""What an MPMD program says: which stages it calls on which devices, and which arrays go from one to the next.

Arrays are numbered: the arguments first, then what each step makes, in order. All of it is the client's word, which
nobody has checked. Neighbours: `sandbox.stage_reading` reads it; the door's `session.stage_plans` checks it.
"""

import msgspec


class StagedStep(msgspec.Struct, frozen=True, array_like=True):
    """`call`: an index of the program's `calls`; COPY, RESHARD: no stage runs, and output k is input k elsewhere."""

    call: int
    inputs: tuple[int, ...]
    outputs: int  # how many


COPY, RESHARD = -1, -2


class StagedCall(msgspec.Struct, frozen=True, array_like=True):
    """A stage: one of the program's `codes`, compiled for a mesh. `devices`: as the program numbers them."""

    code: str
    mesh: str
    devices: tuple[int, ...]

    @property
    def key(self) -> str:
        """What compile options and answers call it."""
        return f"{self.code}_mesh_{self.mesh}"


class StagedProgram(msgspec.Struct, frozen=True, array_like=True):
    """`types`: of all arrays, as the IFRT dialect writes them. `codes`: StableHLO."""

    name: str
    parameters: int
    donated: tuple[int, ...]
    types: tuple[str, ...]
    steps: tuple[StagedStep, ...]
    results: tuple[int, ...]
    calls: tuple[StagedCall, ...]
    codes: dict[str, bytes]
