"""The interface between an agent and its host's devices, implemented by `pjrt` and `timed`.

Methods are called under the node's lock, in the order of core's commands; each returns at once. Devices report with
`post`, from any thread: Reformed, CodeReady, Finished, LaunchFailed, Copied, RowsCounted, DeviceLost.

    launch      enqueues on this host's devices of the gang, from one thread, in the order of the calls; inputs are
                futures. After LaunchFailed nothing more is enqueued until `abandon` names that seq.
    make        reserves room, or stores a literal; `free` releases it, after what was enqueued before.
    view        a buffer of shards that are here: it shares their memory, and takes none.
    shards      contents for other hosts: waits until they exist, so it is called in a copying thread.
    fill        contents from other hosts, for a buffer that `make` made; once, before a launch that reads it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from core.model import Hosts, Layout, Plan
from core.protocol import effects as e

from ..streams import LentReading
from .gang_times import GangTimes

Post = Callable[[e.Event], None]
Index = tuple[int, ...]  # of a shard: one number for each dimension
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """The world of an island's epoch, and the rank under which a host joins it."""

    epoch: int
    address: str  # of the coordination service; "" if the host is the only member
    hosts: Sequence[int]  # members, in the order of their ranks
    me: int  # this host
    devices: Mapping[int, Sequence[int]]  # host -> its devices' numbers in the cluster
    listen: str = "127.0.0.1"  # this machine's address at which other members reach it directly
    lease: float = 10.0  # seconds without a sign of life after which a member counts as gone


class DeviceAbout(NamedTuple):
    """How a host describes itself when it enrols."""

    platform: str  # "cpu", "cuda", "tpu", "timed"
    kind: str  # "TPU v4", "NVIDIA H200", ...
    devices: int
    memory: int  # bytes of each device that programs may use; 0: no limit


class Devices(Protocol):
    post: Post  # set by the agent
    hosts: Hosts | None  # set by the agent: which devices each host of the cluster has
    # set by the agent; called with an internal error, from any thread
    failed: Callable[[BaseException], None]
    # set by the agent: calls a function of a client's process, by its session's key; from any thread
    ask: Callable[[str, bytes, Callable[[bytes], None]], None]
    stamps: GangTimes  # when gangs were enqueued here, and seen to end; the agent may replace their clock

    def about(self) -> DeviceAbout: ...

    def reads(self, lent: LentReading, between: Callable[[], float | None]) -> int | None:
        """Reads the controller's stream in the thread that enqueues, whenever that has nothing to do; it calls
        `between` after each piece of work, and again after so many seconds. Returns that thread's number."""

    def reform(self, command: e.Reform, world: WorldSpec) -> None: ...

    def compile(self, command: e.CompileCode, plan: Plan, blobs: Mapping[str, bytes]) -> None:
        """`blobs`: all code that the command names, by content hash."""

    def forget(self, plan: int) -> None:
        """No later call names the plan. Each `compile` is answered, though nobody wants its code any more."""

    def launch(self, command: e.Launch, plan: Plan) -> None: ...

    def abandon(self, seqs: Sequence[int]) -> None: ...

    def cut(self, seq: int) -> None:
        """Ends a gang of several steps with the step under way; or lets it go on, if that cannot be done."""

    def make(self, command: e.MakeBuffer) -> None: ...

    def view(self, command: e.MakeView) -> None: ...

    def free(self, first: int, count: int) -> None: ...

    def spill(self, command: e.SpillBuffer) -> None: ...

    def restore(self, command: e.RestoreBuffer) -> None: ...

    def count(self, command: e.CountRows) -> None: ...

    def shards(self, buffer: int) -> Mapping[Index, Array]:
        """The distinct shards of a buffer that this host has, in host memory. Blocks; any thread."""

    def at_hand(self, buffer: int) -> bool:
        """Whether `shards` would return at once, because the contents exist and lie where they can be read."""

    def fill(self, buffer: int, layout: Layout, shards: Mapping[Index, Array]) -> None:
        """Takes in the complete contents of this host's shards of a buffer."""

    def spoil(self, buffer: int, reason: str) -> None:
        """A buffer's contents are unusable: gangs that read it run with placeholders, and end with this reason."""

    def close(self) -> None:
        """Ends threads and releases all resources."""


# --- what accelerators this machine has -------------------------------------------------------------------------------

# A process that asks JAX holds them for as long as it lives, so a child asks. A session on this machine admits
# programs by their memory before its agent has started.

REPORT = "import json; from backend.pjrt import WorldMembership; print(json.dumps(WorldMembership.about(0)))"
PATIENCE_S = 60.0


def accelerators_here(platform: str) -> DeviceAbout | None:
    """The "cuda" or "tpu" devices of this machine; None if JAX finds none. Why it finds none, an agent says."""
    environment = os.environ | {"JAX_PLATFORMS": platform}
    try:
        done = subprocess.run(
            [sys.executable, "-c", REPORT], env=environment, capture_output=True, timeout=PATIENCE_S, check=True
        )
        return DeviceAbout(*json.loads(done.stdout.splitlines()[-1]))
    except (subprocess.SubprocessError, ValueError, IndexError):
        return None
