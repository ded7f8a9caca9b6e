"""What messages and calls cost the CPUs of hosts: a named set of integers, each with its source.

`paper` is fitted to numbers of the Pathways paper; `seaway` stands for our own backend; `ideal` has no costs. Every
result is printed with its profile, so that nobody confuses them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from core.model import Impossible

from .toml_tables import Table, figure, known_keys, nearest, packaged, subtable, toml

Status = Literal["fitted", "unmeasured", "measured", "free"]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Nanoseconds of one CPU thread; costs whose name ends in `_ps` are picoseconds a byte."""

    name: str
    fanout: Literal["flat", "tree"] | int  # hosts to which the controller writes: all, the tree's first, or so many
    status: Status
    client_call: int  # a client's Python: one call
    client_note: int  # a client: receiving a note
    receive: int  # any process: receiving a message
    receive_byte_ps: int
    send: int  # any process: writing a message to one peer
    send_byte_ps: int
    step: int  # the controller: ordering a step
    relay_step: int  # a host: reading a step that was ordered
    enqueue: int  # a host: enqueueing one gang on its devices, one device after the other
    prepare: int  # a host: the part of a launch that needs no data
    complete: int  # a host: noticing that a gang is over
    transfer_chunk: int  # a host: a chunk of contents
    # The next costs are for Python processes that share few cores (`shared_machines`); such processes batch what they
    # send to one another (`sim.hosts.message_batching`).
    complete_more: int = -1  # each further gang whose end is noticed together with another's
    transfer_byte_ps: int = 0  # each byte of a chunk, beside `transfer_chunk`
    transfer_end: int = 0  # a host: either end of a transfer, beyond its bytes and its messages
    literal: int = 0  # a host: making contents that came with a call or from elsewhere into a buffer
    sum: int = 0  # a host of CPU devices: a round of a sum over hosts, in the thread that enqueues
    stall: int = 0  # another process on the machine holds such a thread up for this long ...
    stall_every: int = 0  # ... once in this much of its working time; 0: never
    instant: bool = False  # messages take no time on the network, nor do signals between a host and its devices
    hosts: int = 0  # it was measured with so many hosts at most; 0: not said
    note: str = ""
    fitted: dict[str, str] = {}  # cost -> the number to which it was fitted
    sources: dict[str, str] = {}  # cost -> where it comes from, for all costs

    def __hash__(self) -> int:
        return hash((self.name, self.send, self.receive, self.step, self.enqueue))

    def describe(self) -> str:
        """The profile as text: each cost, and where it comes from or what it is fitted to."""
        fanout = f"fan-out {self.fanout}"
        lines = [f"profile {self.name!r} ({self.status}; {fanout})"]
        for key in COSTS:
            unit = " ps/B" if key.endswith("_ps") else " us"
            value = getattr(self, key)
            if key in OPTIONAL and key not in self.sources:
                continue
            shown = f"{value}" if key.endswith("_ps") else f"{value / 1000:g}"
            why = f"fitted to {self.fitted[key]}" if key in self.fitted else self.sources[key]
            lines.append(f"  {key:16}{shown:>8}{unit:6}{why}")
        return "\n".join(lines)

    def completing(self, number: int) -> int:
        """What `number` gangs cost whose ends are noticed together."""
        more = self.complete if self.complete_more < 0 else self.complete_more
        return self.complete + (number - 1) * more

    def writing(self, nbytes: int) -> int:
        """What a message costs its sender."""
        return self.send + nbytes * self.send_byte_ps // 1000

    def taking(self, nbytes: int) -> int:
        """What a message costs its receiver."""
        return self.receive + nbytes * self.receive_byte_ps // 1000

    def chunk(self, nbytes: int) -> int:
        """What a chunk of contents costs at either end. Python processes send it as a message, like any other."""
        return self.transfer_chunk + nbytes * self.transfer_byte_ps // 1000

    def changed(self, **costs: int) -> Profile:
        """The profile with other costs, in the same units: to see how much a conclusion depends on one of them."""
        for key, value in costs.items():
            if key not in COSTS:
                raise Impossible(f"a profile has no cost {key!r}; {nearest(key, COSTS)}")
            if type(value) is not int or value < 0:
                raise Impossible(f"profile {self.name!r}: `{key}` cannot be {value!r}: whole, not negative")
        fitted = {key: why for key, why in self.fitted.items() if key not in costs}
        sources = self.sources | dict.fromkeys(costs, "changed by the caller")
        return msgspec.structs.replace(self, **costs, fitted=fitted, sources=sources)

    def slower(self, by: float) -> Profile:
        """The profile of a machine whose cores need `by` times as long for everything; pauses stay as they are."""
        costs = [key for key in COSTS if key not in PAUSES and getattr(self, key) > 0]
        return self.changed(**{key: round(getattr(self, key) * by) for key in costs})


HEAD = ("name", "fanout", "status", "instant", "hosts", "note")
COSTS = tuple(field.name for field in msgspec.structs.fields(Profile) if field.name not in (*HEAD, "fitted", "sources"))
OPTIONAL = ("complete_more", "transfer_byte_ps", "transfer_end", "literal", "sum", "stall", "stall_every")
PAUSES = ("stall", "stall_every")


def profile(what: str | Path) -> Profile:
    """A profile by name (such as `paper`) or from a TOML file, which may name another to start from with `like`."""
    if isinstance(what, Path) or what.endswith(".toml"):
        return _read(str(what), {"name": Path(what).stem, **toml(Path(what))}, f"stated in {what}")
    if what not in profiles():
        raise Impossible(f"no profile {what!r}; {nearest(what, profiles())}; or the path of a TOML file")
    return profiles()[what]


@cache
def profiles() -> dict[str, Profile]:
    return {
        file: _read(f"sim/data/profiles/{file}.toml", {"name": file, **table}, "")
        for file, table in packaged("profiles").items()
    }


def profile_in(label: str, name: str, table: Table) -> Profile:
    """The profile that a cluster file contains."""
    return _read(f"{label} [profile]", {"name": name, **table}, f"stated in {label}")


def _read(label: str, table: Table, source: str) -> Profile:
    known_keys(label, table, (*HEAD, "like", "costs"))
    like = table.get("like")
    if like is not None and (not isinstance(like, str) or like not in profiles()):  # a file reads no other file
        raise Impossible(f"{label}: no profile {like!r}; {nearest(str(like), profiles())}")
    base = {"fitted": {}, "sources": {}} if like is None else msgspec.structs.asdict(profiles()[like])
    costs, fitted = dict(base), dict(base["fitted"])
    sources = dict(base["sources"])
    given = subtable(label, table, "costs")
    known_keys(f"{label} [costs]", given, COSTS)
    for key, value in given.items():
        unit = "number" if key.endswith("_ps") else "time"
        costs[key], sources[key] = figure(f"{label} [costs]", key, value, unit, source)
        fitted.pop(key, None)
        if isinstance(value, dict) and "fitted" in value:
            fitted[key] = str(value["fitted"])
        if not sources[key] and key not in fitted:
            raise Impossible(f"{label} [costs]: `{key}` needs a `source`, or the number to which it is `fitted`")
    if missing := [key for key in COSTS if key not in costs and key not in OPTIONAL]:
        raise Impossible(f"{label} [costs] lacks {', '.join(missing)}; or say which profile it is `like`")
    head = {key: table[key] for key in HEAD if key in table}
    made = {"status": "unmeasured", "fanout": "tree", **costs, **head, "fitted": fitted, "sources": sources}
    try:
        found = msgspec.convert(made, Profile)
    except msgspec.ValidationError as error:
        raise Impossible(f"{label}: {error}") from None
    if isinstance(found.fanout, int) and found.fanout < 1:
        raise Impossible(f"{label}: `fanout` cannot be {found.fanout}: 'flat', 'tree', or hosts, at least 1")
    return found
