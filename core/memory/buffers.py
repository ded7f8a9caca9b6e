"""Keeps the logical buffers: one reference count for all shards of a buffer, its owner, and its state.

    promised -filled-> ready -spill-> spilling -copied-> spilled -restore-> restoring -copied-> ready
    any of these --spoilt--> poisoned: the buffer keeps its first blame until its last reference is gone

References to a buffer are: its client's handle (the client's name for it); the promise of its maker, until the step
that makes it has entered an order; each run that reads it and has not ended; each transfer. The methods that drop a
reference return the buffer if it was the last one, so that the caller can free it.

Admitted runs and transfers also *use* the buffers that they hold. A run that waits for admission holds the buffers
that it will read but does not use them, so they can be spilled: a waiting run never keeps memory from others
(spill.py).

A client that donates a buffer gives up its handle for good. If the run has the only reference when it is admitted
(`is_sole`), it takes over the memory. Otherwise it gets memory of its own, and the buffer is freed with its last
reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from ..model import Illegal, Layout, Range, RangeTable, Spans
from ..protocol import Blame

State = Literal["promised", "ready", "spilling", "spilled", "restoring", "poisoned"]
Event = Literal["filled", "spill", "copied", "restore", "spoilt"]

TABLE: dict[tuple[State, Event], State] = {
    ("promised", "filled"): "ready",
    ("promised", "spoilt"): "poisoned",
    ("ready", "spill"): "spilling",
    ("ready", "spoilt"): "poisoned",
    ("spilling", "copied"): "spilled",
    ("spilling", "spoilt"): "poisoned",
    ("spilled", "restore"): "restoring",
    ("spilled", "spoilt"): "poisoned",
    ("restoring", "copied"): "ready",
    ("restoring", "spoilt"): "poisoned",
    ("poisoned", "filled"): "poisoned",
    ("poisoned", "copied"): "poisoned",
    ("poisoned", "spoilt"): "poisoned",
}


NO_LAYOUT: Any = None  # where nobody asks for it


class Buffer(msgspec.Struct, eq=False):
    """One logical buffer; or `count` of them, with consecutive ids and names, that have had one history so far.
    `Buffers` does not read what is said to be for the controller."""

    id: int  # the first, as `name`
    client: int  # its owner; 0 if only runs hold it
    name: int  # the client's name for it
    key: int  # of its place, in `Atoms`
    nbytes: int  # on each device, of all of them
    handle: bool = False  # whether its client holds it
    promise: bool = False  # whether the step that makes it has still to enter an order
    exact: bool = True  # False if `nbytes` is only a bound

    layout: Layout = NO_LAYOUT  # of the first; for the controller, as the next two
    hosts: Spans = ()
    owner: Any = None  # its record of the client's name

    made: bool = False  # whether the step that makes it has entered an order
    on_device: bool = False  # whether the ledger counts its bytes as the buffer's own, not as a run's
    on_host: bool = False  # whether its bytes are counted on its hosts: in their memory ...
    on_disk: bool = False  # ... or, in this case, on their disks
    copying: bool = False  # whether it is being copied to its hosts or from there
    taken: bool = False  # whether a run to which it was donated has taken over its memory
    counted: bool = False  # whether its bytes are in `Buffers.held_bytes`
    state: State = "promised"
    blame: Blame | None = None
    holds: int = 0  # runs and transfers that hold it
    users: int = 0  # runs and transfers among these that use it
    last_seq: int = -1  # the latest step in the order that touches it
    last_used: int = 0  # a count of uses of all buffers, to find the least recently used one; of the first

    sources: tuple[int, ...] = ()  # of a view: the buffers whose memory it shares; it has none of its own
    shards: tuple[int | Range, ...] = ()  # of a view, for the controller: by device, the one that it shares there
    folded: bool = False  # of a view: its hosts have no array for it for a while
    views: int = 0  # of these holds, those of views of it; for the controller
    shared: int = 0  # how many of them share its memory, which therefore stays on the devices

    count: int = 1
    sizes: tuple[int, ...] = ()  # of several: the bytes of each
    layouts: tuple[Layout, ...] = ()  # of several, for the controller

    # For the controller:
    rows: int = -1  # valid rows of the first dimension, if an irregular gang made it; -1: all
    aliases: int = 0  # further names that clients have for it
    transfers: int = 0  # puts and gets under way

    @property
    def references(self) -> int:
        return self.holds + self.handle + self.promise

    def part(self, at: int) -> Buffer:
        """Keep the first `at` of several; return the others, of which all is true that is true of these."""
        sizes, layouts = self.sizes, self.layouts
        name, used = self.name and self.name + at, self.last_used and self.last_used + at
        rest = msgspec.structs.replace(self, id=self.id + at, name=name, last_used=used)
        for buffer, here, lie in ((self, sizes[:at], layouts[:at]), (rest, sizes[at:], layouts[at:])):
            buffer.count, buffer.nbytes, buffer.layout = len(here), sum(here), lie[0] if lie else NO_LAYOUT
            buffer.sizes, buffer.layouts = (here, lie) if len(here) > 1 else ((), ())
        if self.owner is not None:
            rest.owner = self.owner.part(at)
        return rest

    def turn(self, event: Event) -> None:
        after = TABLE.get((self.state, event))
        if after is None:
            raise Illegal(f"buffer {self.id} is {self.state}: {event} cannot happen to it")
        self.state = after


class BuffersById(RangeTable[Buffer]):
    """Buffers by id. To look up an unknown id is a mistake of the caller, and so Illegal."""

    __slots__ = ("handles",)

    def __init__(self) -> None:
        super().__init__()
        self.handles: dict[int, dict[int, int]] = {}  # client -> name -> buffer

    def _split(self, first: int, name: int, record: Buffer) -> None:
        super()._split(first, name, record)
        rest = self[name]
        if rest.handle:
            self.handles[rest.client][rest.name] = name

    def __missing__(self, ident: int) -> Buffer:
        raise Illegal(f"there is no buffer {ident}")


class Buffers:
    """All buffers with a reference. The controller chooses their ids, clients choose names."""

    def __init__(self) -> None:
        self.all = BuffersById()  # by id
        self._names = self.all.handles
        self.held_bytes: dict[int, int] = {}  # by client: of all devices, what it has a name for
        self._devices: dict[int, int] = {}  # by key of a place: how many they are
        self._uses = 0

    def __getitem__(self, ident: int) -> Buffer:
        return self.all[ident]

    def __contains__(self, ident: int) -> bool:
        return ident in self.all

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.all.values())

    def __len__(self) -> int:
        return self.all.names()

    # --- several as one -------------------------------------------------------------------------------

    def over(self, ident: int, count: int) -> list[Buffer]:
        """The records of these buffers, in order, and of no others. Those that are gone are left out."""
        return [self.all[ident]] if count == 1 else self.all.over(ident, count)

    def held(self, held: Mapping[int, int], width: Mapping[int, int]) -> list[Buffer]:
        """The records of what a run holds: argument -> the first buffer, and how many where they are several."""
        if not width:
            return [self.all[ident] for ident in held.values()]
        return [buffer for index, ident in held.items() for buffer in self.over(ident, width.get(index, 1))]

    def open(self, chosen: Callable[[Buffer], bool]) -> None:
        """Give each buffer a record of its own where several have one that is `chosen`."""
        for buffer in [buffer for buffer in self if buffer.count > 1 and chosen(buffer)]:
            self.all.open(buffer, buffer.id)

    # --- being made -----------------------------------------------------------------------------------

    def create(
        self, ident: int, client: int, name: int, key: int, nbytes: int, *,
        handle: bool = True, promise: bool = True, exact: bool = True,
        layout: Layout = NO_LAYOUT, hosts: Spans = (), owner: Any = None, sizes: tuple[int, ...] = (),
        layouts: tuple[Layout, ...] = (),
    ) -> Buffer:  # fmt: skip
        """Add a result that a run will make, or a Put.

        Without `promise` its memory has been counted already. A result whose name was released before it had an id
        has no `handle`. If not `exact`, `nbytes` is only a bound. `sizes`, `layouts`: of several.
        """
        if ident in self.all or (handle and name in self._names.get(client, {})):
            raise Illegal(f"buffer {ident}, or client {client}'s name {name}, is in use")
        made = Buffer(ident, client, name, key, nbytes, handle, promise, exact, layout, hosts, owner)
        made.made = made.on_device = not promise
        if len(sizes) > 1:
            made.count, made.sizes, made.layouts = len(sizes), sizes, layouts
            self.all.put(ident, made)
        else:
            self.all[ident] = made
        if handle:
            self._names.setdefault(client, {})[name] = ident
            made.counted = True
            self._count(made, nbytes)
        return made

    def ordered(self, ident: int, seq: int) -> list[Buffer]:
        """The step that makes the buffer has entered an order: the memory belongs to the buffer from now on.

        Return the buffer if no reference is left.
        """
        buffer = self.all[ident]
        if not buffer.promise:
            raise Illegal(f"buffer {ident} is made twice")
        buffer.promise, buffer.made, buffer.on_device = False, True, not buffer.taken
        buffer.last_used = self._uses + 1
        self._uses += buffer.count  # each of several in turn
        buffer.last_seq = max(buffer.last_seq, seq)
        return [] if buffer.holds or buffer.handle else self._gone(buffer)

    def never_made(self, ident: int, blame: Blame) -> list[Buffer]:
        """The run that was to make the buffer ended before the step entered: poison it. It has no memory.

        Return the buffer if no reference is left.
        """
        buffer = self.all[ident]
        if not buffer.promise:
            raise Illegal(f"buffer {ident} has been made")
        buffer.promise = False
        self.poison(ident, blame)
        return self._gone(buffer)

    def filled(self, ident: int) -> None:
        self.all[ident].turn("filled")

    def poison(self, ident: int, blame: Blame) -> None:
        """The buffer will never have valid contents. It keeps its first blame."""
        buffer = self.all[ident]
        buffer.turn("spoilt")
        buffer.blame = buffer.blame or blame

    def shrink(self, ident: int, nbytes: int) -> None:
        """Set the size of an irregular result, which is known now."""
        buffer = self.all[ident]
        nbytes = min(buffer.nbytes, nbytes)
        if buffer.counted:
            self._count(buffer, nbytes - buffer.nbytes)
        buffer.nbytes = nbytes
        buffer.exact = True

    # --- holding --------------------------------------------------------------------------------------

    def hold(self, ident: int, alias: bool = False) -> Buffer:
        """`alias`: by one more name that its client has for it."""
        buffer = self.all[ident]
        buffer.holds += 1
        if alias:
            buffer.aliases += 1
            self._count_held(buffer)
        return buffer

    def let_go(self, ident: int, *, used: bool = False) -> list[Buffer]:
        """Drop one hold of a run or transfer. With `used`, it has used the buffer too.

        Return the buffer if no reference is left. It is forgotten here; the caller frees its memory.
        """
        buffer = self.all[ident]
        if used:
            if not buffer.users:
                raise Illegal(f"buffer {ident} has no user")
            buffer.users -= 1
        if buffer.holds <= buffer.users:
            raise Illegal(f"buffer {ident} has no hold left to drop")
        buffer.holds -= 1
        return self._gone(buffer)

    def use(self, ident: int) -> None:
        """One of its holders uses the buffer from now on."""
        buffer = self.all[ident]
        if buffer.users >= buffer.holds:
            raise Illegal(f"buffer {ident} has more users than holders")
        buffer.users += 1
        buffer.last_used = self._uses + 1
        self._uses += buffer.count  # each of several in turn

    def touch(self, ident: int, seq: int) -> None:
        """Step `seq` reads or fills the buffer."""
        buffer = self.all[ident]
        buffer.last_seq = max(buffer.last_seq, seq)
        buffer.last_used = self._uses + 1
        self._uses += buffer.count  # each of several in turn

    # --- the client's side ----------------------------------------------------------------------------

    def release(self, client: int, name: int) -> list[Buffer]:
        """Drop the client's handle, because it released the buffer or donated it to a run that holds it already.

        Return the buffer if no reference is left.
        """
        ident = self._names.get(client, {}).pop(name, None)
        if ident is None:
            raise Illegal(f"client {client} has no buffer {name}")
        return self._drop_handle(ident)

    def is_sole(self, ident: int, nbytes: int, sizes: tuple[int, ...] = ()) -> bool:
        """Whether a run that holds this buffer can take over its memory.

        It can if it has the only reference (the maker's promise aside; a view that shares the memory has one), and if
        the buffer is no view, and as large as the run's plan says. An irregular result may be smaller, or its size may
        not be known yet. `sizes`: of several.
        """
        buffer = self.all[ident]
        if sizes and buffer.count < len(sizes):
            return self._are_sole(ident, sizes)
        return (
            buffer.holds == 1
            and not buffer.handle
            and buffer.exact
            and not buffer.sources
            and buffer.nbytes == nbytes
            and (not sizes or buffer.sizes == sizes)
            and buffer.state not in ("spilling", "poisoned")
        )

    def _are_sole(self, ident: int, sizes: tuple[int, ...]) -> bool:
        """The same of several buffers that are not counted as one any more."""
        at = 0
        for buffer in self.all.over(ident, len(sizes)):
            its = sizes[at : at + buffer.count]
            if not self.is_sole(buffer.id, sum(its), its if buffer.count > 1 else ()):
                return False
            at += buffer.count
        return at == len(sizes)

    def consumed(self, ident: int) -> None:
        """An admitted run has taken over the memory: to drop the last reference will free nothing."""
        buffer = self.all[ident]
        if not self.is_sole(ident, buffer.nbytes, buffer.sizes):
            raise Illegal(f"buffer {ident} has other references")
        buffer.on_device, buffer.taken = False, True

    def returned(self, ident: int) -> None:
        """That run ended before the step that was to consume the buffer: it owns its memory again."""
        buffer = self.all[ident]
        if not buffer.taken:
            raise Illegal(f"buffer {ident} was not consumed")
        buffer.taken, buffer.on_device = False, buffer.made

    def hand_over(self, old: int, new: int) -> None:
        """The client's handle is on `new` from now on."""
        source, copy = self.all[old], self.all[new]
        source.handle, copy.handle = False, True
        self._names[source.client][source.name] = new
        self._count_held(source)
        self._count_held(copy)

    def client_gone(self, client: int) -> list[Buffer]:
        """Drop all handles of a client, in the order of its names. Runs and transfers keep theirs until they end.

        Return the buffers without any reference left.
        """
        names = self._names.pop(client, {})
        return [buffer for name in sorted(names) for buffer in self._drop_handle(names[name])]

    def _count_held(self, buffer: Buffer, here: bool = True) -> None:
        """Whether its client has a name for it may be another now."""
        held = here and (buffer.handle or buffer.aliases > 0)
        if held is not buffer.counted:
            self._count(buffer, buffer.nbytes if held else -buffer.nbytes)
            buffer.counted = held

    def _count(self, buffer: Buffer, nbytes: int) -> None:
        """Its client holds so many bytes more for each of its devices."""
        client, devices = buffer.client, self._devices.get(buffer.key)
        if devices is None:
            devices = self._devices[buffer.key] = 1 if buffer.layout is NO_LAYOUT else buffer.layout.place.size
        held = self.held_bytes.get(client, 0) + nbytes * devices
        if held:
            self.held_bytes[client] = held
        else:
            self.held_bytes.pop(client, None)

    def _drop_handle(self, ident: int) -> list[Buffer]:
        buffer = self.all[ident]
        buffer.handle = False
        return self._gone(buffer)

    def _gone(self, buffer: Buffer) -> list[Buffer]:
        if buffer.counted and not buffer.handle:
            self._count_held(buffer, bool(buffer.holds or buffer.promise))
        if buffer.holds or buffer.handle or buffer.promise:
            return []
        if buffer.count == 1:
            del self.all[buffer.id]
        else:
            self.all.drop(buffer.id)
        return [buffer]
