"""The messages between a client and the controller: calls one way, notes the other.

Start with `messages`, which has the words and the picture. Neighbours: `core.client`, one end; the controller's
`clients`, the other.
"""

from __future__ import annotations

from typing import Literal

from ..model import AllHosts, Layout, Program, Range, SliceSpec, Spans, Value
from .wire import Blame, Wire

# ---------------------------------------------------------------------------------------------------------------
# Client -> controller. The client chooses every name in a call in advance, so no call waits for an answer.


class Open(Wire, frozen=True, tag="open"):
    """The first message of a client, also when it reconnects."""

    name: str
    weight: int = 1
    priority: int = 0
    client: int = 0  # when it reconnects: the number that it had before
    held: tuple[int, ...] = ()  # when it reconnects: the buffers that it still holds
    open_runs: tuple[int, ...] = ()  # when it reconnects: the runs whose end it has not seen
    spoilt: tuple[int, ...] = ()  # when it reconnects: of what it holds, what it was told to be without contents
    start: int = 0  # when it reconnects: the controller's start that served it, as in `Join`


class Register(Wire, frozen=True, tag="register"):
    """Register a program. Compilation starts in the background; runs of it may be submitted at once.

    With `tell`, its slices are bound now, and the client hears once that all of its code is compiled
    (`ProgramCompiled`), or why it never will be.
    """

    program: int
    ir: Program
    tell: bool = False


class Unregister(Wire, frozen=True, tag="unregister"):
    program: int


class Submit(Wire, frozen=True, tag="submit"):
    """Start one run of a program. `waited` and `think` are recorded for what-if studies."""

    run: int
    program: int
    args: tuple[int | bytes | Range, ...]  # the client's names of buffers, or literals (4 KiB in all)
    results: tuple[int | Range, ...]  # names for the results; 0 for a result that the client will not hold
    dispatch: Literal["parallel", "sequential"] = "parallel"
    deadline: int = 0
    waited: tuple[int, ...] = ()  # the runs whose ends the client waited for before this call
    think: int = 0  # nanoseconds from the last of these ends to this call


class Put(Wire, frozen=True, tag="put"):
    """Announce a buffer. The client sends its contents directly to hosts, once they grant it credits."""

    buffer: int
    value: Value
    slice: SliceSpec


class View(Wire, frozen=True, tag="view"):
    """Name an array whose shards are shards of other arrays, on the same devices. Nothing is copied, and it takes no
    memory. Its sources stay until nobody holds the view any more. Answer: ContentsReady, once all its sources are
    ready; with a blame if it is refused, or if a source is lost."""

    buffer: int
    value: Value
    slice: SliceSpec
    # By device of the slice, in its order: a source, and which of its distinct shards (as in `Get`) lies there
    shards: tuple[tuple[int, int], ...]


class Get(Wire, frozen=True, tag="get"):
    """Ask for a buffer's contents. Hosts send them directly to this client. Answer: GetAccepted or Refused."""

    request: int
    buffer: int
    shard: int = -1  # only this one of its distinct shards, which are numbered row-major; -1: all


class Release(Wire, frozen=True, tag="release"):
    buffers: tuple[int | Range, ...]


class ReleaseSlice(Wire, frozen=True, tag="release_slice"):
    name: str


class Relocate(Wire, frozen=True, tag="relocate"):
    """Have slices moved to other devices with the arrays on them, or suspended (the arrays go to host memory, and
    others may have the devices), or resumed. Answer: Relocated when that is done, or Refused."""

    request: int
    action: Literal["move", "suspend", "resume"]
    slice: str = ""  # "": all that it has
    island: str = ""  # of a move: to this island; "": to any


class AskElastic(Wire, frozen=True, tag="elastic"):
    """Ask for a slice of any of these sizes, the largest that can be had, and to be told when another one can be.
    Answer: Sized, each time. The client moves its arrays there, and then releases the slice that it had before."""

    request: int
    name: str
    slice: SliceSpec  # its name and number of devices mean nothing
    sizes: tuple[int, ...]  # increasing
    has: SliceSpec | None = None  # what it was told last, by a controller that was here before
    before: str = ""  # the slice that it was before that, if the client has not released it


class Cancel(Wire, frozen=True, tag="cancel"):
    run: int


class StopRun(Wire, frozen=True, tag="stop_run"):
    """End its computations of several steps with the step that is under way; those that have not begun do none. The
    run ends well, and Ended says how many steps it has left undone. A controller that starts anew forgets this."""

    run: int


class CloseSession(Wire, frozen=True, tag="bye"):
    pass


Call = (
    Register
    | Unregister
    | Submit
    | Put
    | View
    | Get
    | Release
    | ReleaseSlice
    | Relocate
    | AskElastic
    | Cancel
    | StopRun
    | CloseSession
)


class Calls(Wire, frozen=True, tag="calls"):
    """Several calls in one message: a busy client sends its small calls together."""

    calls: tuple[Call, ...]


# ---------------------------------------------------------------------------------------------------------------
# Controller -> client, in the client's names


class Opened(Wire, frozen=True, tag="opened"):
    client: int
    incarnation: int
    start: int = 0
    all_hosts: AllHosts = ()  # of the cluster, as it is now


class Grown(Wire, frozen=True, tag="grown"):
    """The cluster has these hosts now."""

    all_hosts: AllHosts


class ContentsReady(Wire, frozen=True, tag="ready"):
    """These buffers have contents now; or, with a blame, they never will."""

    buffers: tuple[int | Range, ...]
    blame: Blame | None = None


class Ended(Wire, frozen=True, tag="ended"):
    """The run has ended. This is sent exactly once for each run."""

    run: int
    blame: Blame | None = None
    undone: int = 0  # steps, of computations that were ended early


class ProgramCompiled(Wire, frozen=True, tag="compiled_program"):
    """Answer to a Register with `tell`: all code of the program is compiled, where its slices lie now. With a blame it
    never will be: it was refused, or its compilation failed. This is sent exactly once, unless the client takes the
    program back first."""

    program: int
    about: bytes = b""  # what the host with the first device of node 0 says about that node's code; opaque to core
    blame: Blame | None = None


class Waiting(Wire, frozen=True, tag="waiting"):
    """Says what a run waits for. Nothing is wrong with the run."""

    run: int  # a negative number means the put of that buffer; 0: see `program`
    reason: str  # "" if it does not wait any more
    age: int = 0  # of the wait, in nanoseconds
    program: int = 0  # if not 0: what waits is the answer to the Register of this program


class Stalled(Wire, frozen=True, tag="stalled"):
    """A wait has exceeded its soft bound. The hard bound will end it."""

    run: int
    program: str
    node: str
    island: str
    missing: Spans  # hosts that have not arrived
    reason: str
    age: int = 0  # of the wait, in nanoseconds


class GetAccepted(Wire, frozen=True, tag="sending"):
    """Answer to Get: the hosts that have the shards send them as `transfer`."""

    request: int
    transfer: int
    layout: Layout
    rows: int = -1  # how many rows of the first dimension are valid; -1: all
    shard: int = -1  # see `Get`
    early: bool = False  # what makes the contents has not ended: they count only when `GetSettled` has come


class GetSettled(Wire, frozen=True, tag="settled"):
    """What has come, or comes, of an early get is final: what makes the buffer has succeeded, with all that it depends
    on. With a blame it is worth nothing: a replicated result comes from one host, and another may have failed."""

    transfer: int
    blame: Blame | None = None


class PutAccepted(Wire, frozen=True, tag="taking"):
    """Answer to Put: memory is reserved, and hosts will grant credits for `transfer`, which carries the contents."""

    buffer: int
    transfer: int
    layout: Layout


class Relocated(Wire, frozen=True, tag="relocated"):
    """What a Relocate asked for is done."""

    request: int


class Sized(Wire, frozen=True, tag="sized"):
    """An elastic slice is this one from now on."""

    request: int
    name: str
    slice: SliceSpec
    why: str  # why it is not the one that it was
    # This one, a larger one that it was offered, it cannot be any more, unless the client has released the one before.
    taken_back: str = ""


class Refused(Wire, frozen=True, tag="refused"):
    """The controller refuses a call. The blame says what was asked, what there is, and what would fit."""

    # "program", "put", "get", "slice", "relocate" or "elastic"; "sending": a get after `GetAccepted`; not all contents
    # may come
    what: str
    name: int
    blame: Blame


class ConnectionClosed(Wire, frozen=True, tag="goodbye"):
    """The controller closes the connection: the peer broke the protocol, or was dismissed."""

    reason: str
    code: str = "client-lost"  # of the blame for what has not ended


Note = (
    Opened
    | Grown
    | ContentsReady
    | Ended
    | ProgramCompiled
    | Waiting
    | Stalled
    | GetAccepted
    | GetSettled
    | PutAccepted
    | Relocated
    | Sized
    | Refused
    | ConnectionClosed
)


class ClientMessages(Wire, frozen=True, tag="notes"):
    notes: tuple[Note, ...]
