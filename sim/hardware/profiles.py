"""What messages and calls cost the CPUs of hosts: a named set of integers, each with where it comes from.

`paper` is fitted to named numbers of the Pathways paper; `seaway` stands for our own backend. A profile is
printed with every result, so that nobody takes the one for the other.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from core.model import Impossible

from .toml_tables import Table, figure, known_keys, nearest, packaged, subtable, toml

Status = Literal["fitted", "unmeasured", "measured"]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Nanoseconds of one CPU thread, but for the two in picoseconds a byte."""

    name: str
    fanout: (
        Literal["flat", "tree"] | int
    )  # whom the controller writes to: all hosts, or the first ones of a tree
    status: Status
    client_call: int  # a client's Python: one call
    client_note: int  # a client: taking a note
    receive: int  # a process: taking a message
    receive_byte_ps: int
    send: int  # a process: writing a message to one peer
    send_byte_ps: int
    step: int  # controller: ordering a step
    relay_step: int  # a host: reading a step that was ordered
    enqueue: int  # a host: enqueueing one gang on its devices, one after the other
    prepare: int  # a host: what a launch needs that needs no data
    complete: int  # a host: noticing that a gang is over
    transfer_chunk: int  # a host: a chunk of contents
    # Where processes are Python's on short machines (`shared_machines`), what they say to one another is gathered
    # (`sim.hosts.message_batching`).
    send_more: int = -1  # each further message that goes with another; -1: as much as the first
    receive_more: int = -1
    complete_more: int = -1  # each further gang whose end is noticed with another's
    transfer_byte_ps: int = 0  # of a chunk, beside `transfer_chunk`
    transfer_end: int = 0  # a host: either end of a transfer, beyond its bytes and the words about it
    literal: int = 0  # a host: contents, that came with a call or from elsewhere, become a buffer
    wake: int = 0  # a process that had nothing to do begins with something
    hand: int = 0  # a host whose device computes on its cores: it hands a gang to a thread that computes it
    meet: int = 0  # a host whose device computes on its cores: it waits for peers in a gang, and is woken
    stall: int = 0  # whatever else has the core first holds such a thread up for so long ...
    stall_every: int = 0  # ... once in so long that it works; 0: never
    gather: int = 0  # for each that went together, so long nothing more is written there ...
    gather_most: int = 0  # ... and no longer
    note: str = ""
    fitted: dict[str, str] = {}  # cost -> the number that it was fitted to
    sources: dict[str, str] = {}  # cost -> where it comes from, for all costs

    def __hash__(self) -> int:
        return hash((self.name, self.send, self.receive, self.step, self.enqueue))

    def describe(self) -> str:
        """For people: each cost, and whether it is fitted."""
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

    def of_several(self, cost: Literal["send", "receive", "complete"], number: int) -> int:
        """So many together."""
        first, more = getattr(self, cost), getattr(self, f"{cost}_more")
        return int(first + (number - 1) * (first if more < 0 else more))

    def further(self, cost: Literal["send", "receive"]) -> int:
        """One that goes with another."""
        more: int = getattr(self, f"{cost}_more")
        return more if more >= 0 else int(getattr(self, cost))

    def chunk(self, nbytes: int) -> int:
        """Of contents, at either end. Among Python processes it is a message on the wire, as others are."""
        return self.transfer_chunk + nbytes * self.transfer_byte_ps // 1000

    def changed(self, **costs: int) -> Profile:
        """With other costs, in the same units: for asking how far a conclusion hangs on one of them."""
        for key, value in costs.items():
            if key not in COSTS:
                raise Impossible(f"a profile has no cost {key!r}; {nearest(key, COSTS)}")
            if type(value) is not int or value < 0:
                raise Impossible(f"profile {self.name!r}: `{key}` cannot be {value!r}: whole, not negative")
        fitted = {key: why for key, why in self.fitted.items() if key not in costs}
        sources = self.sources | dict.fromkeys(costs, "changed by the caller")
        return msgspec.structs.replace(self, **costs, fitted=fitted, sources=sources)

    def slower(self, by: float) -> Profile:
        """On the same machine, while its cores need so many times as long for everything; pauses do not."""
        costs = [key for key in COSTS if key not in PAUSES and getattr(self, key) > 0]
        return self.changed(**{key: round(getattr(self, key) * by) for key in costs})


HEAD = ("name", "fanout", "status", "note")
COSTS = tuple(
    field.name for field in msgspec.structs.fields(Profile) if field.name not in (*HEAD, "fitted", "sources")
)
OPTIONAL = ("send_more", "receive_more", "complete_more", "transfer_byte_ps", "transfer_end", "literal", "wake",
            "hand", "meet", "stall", "stall_every", "gather", "gather_most")  # fmt: skip
PAUSES = ("gather", "gather_most", "stall", "stall_every")


def profile(what: str | Path) -> Profile:
    """By name (`paper`, `seaway`) or from a TOML file, which may start from another with `like`."""
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


def profile_in(who: str, name: str, table: Table) -> Profile:
    """The one that a cluster file brings."""
    return _read(f"{who} [profile]", {"name": name, **table}, f"stated in {who}")


def _read(who: str, table: Table, source: str) -> Profile:
    known_keys(who, table, (*HEAD, "like", "costs"))
    like = table.get("like")
    base = msgspec.structs.asdict(profile(str(like))) if like is not None else {"fitted": {}, "sources": {}}
    costs, fitted = dict(base), dict(base["fitted"])
    sources = dict(base["sources"])
    given = subtable(who, table, "costs")
    known_keys(f"{who} [costs]", given, COSTS)
    for key, value in given.items():
        unit = "number" if key.endswith("_ps") else "time"
        costs[key], sources[key] = figure(f"{who} [costs]", key, value, unit, source)
        fitted.pop(key, None)
        if isinstance(value, dict) and "fitted" in value:
            fitted[key] = str(value["fitted"])
        if not sources[key] and key not in fitted:
            raise Impossible(f"{who} [costs]: `{key}` says neither its `source` nor what it is `fitted` to")
    if missing := [key for key in COSTS if key not in costs and key not in OPTIONAL]:
        raise Impossible(f"{who} [costs] lacks {', '.join(missing)}; or say which profile it is `like`")
    head = {key: table[key] for key in HEAD if key in table}
    made = {"status": "unmeasured", "fanout": "tree", **costs, **head, "fitted": fitted, "sources": sources}
    try:
        found = msgspec.convert(made, Profile)
    except msgspec.ValidationError as error:
        raise Impossible(f"{who}: {error}") from None
    if isinstance(found.fanout, int) and found.fanout < 1:
        raise Impossible(f"{who}: `fanout` cannot be {found.fanout}: 'flat', 'tree', or hosts, at least 1")
    return found
