"""Who has which devices: binds each session's slices to places, and binds them anew when devices go.

Slices share devices, least loaded first; an exclusive one has its devices alone and waits until it can. A
slice that must wait stands in line and *claims* the place it would like best: later slices leave that alone
where the two could not share it. A claim is kept while its devices are there, so a slice waits only for those
who came before it. All is decided in order of tickets, drawn when a slice is first bound: the same calls give
the same places.

Nothing outside this room may remember a physical device: it asks again, after every remapping.
"""

from __future__ import annotations

import msgspec

from ..model import Cluster, Impossible, Place, SliceSpec, device_spans, spans
from .inventory import Inventory
from .placing import Free, choose
from .refusals import Refusals
from .wording import refuse, some, wish

Key = tuple[int, str]  # session, name of the slice
MOVE = -1


class Bound(msgspec.Struct, frozen=True):
    place: Place


class Waits(msgspec.Struct, frozen=True):
    """It can be bound, but not now; the reason says what it waits for."""

    reason: str
    absent: bool = False  # for hosts that are not there; else for devices that others have


class Moved(msgspec.Struct, frozen=True):
    """A slice that had to leave its place. One that waits is found by `retry` in time."""

    session: int
    name: str
    old: Place
    new: Place | Waits


class Binding(msgspec.Struct, frozen=True):
    """One slice of one session: bound (`place`), or waiting (`reason`, and a `claim` if devices could
    serve)."""

    session: int
    spec: SliceSpec
    ticket: int
    place: Place | None = None
    claim: Place | None = None
    reason: str = ""
    home: int = -1  # the island it was driven from, if it waits for a new place

    @property
    def key(self) -> Key:
        return self.session, self.spec.name


class Resources:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.refusals = Refusals()
        self._stock = [Inventory(island) for island in cluster.islands]
        self._bindings: dict[Key, Binding] = {}  # in order of tickets
        self._waiting: dict[Key, None] = {}  # in order of tickets
        self._tickets = 0
        self.version = 0  # grows whenever a slice is bound, moved or released

    # --- hosts and devices come and go ----------------------------------------------------------------------

    def host_joined(self, host: int) -> None:
        """New or back: its devices are good, whatever was before."""
        self._stock_of_host(host).turn(host, "joined")

    def host_draining(self, host: int) -> None:
        """Nothing new goes there; `remap` empties it."""
        self._stock_of_host(host).turn(host, "draining")

    def host_lost(self, host: int) -> None:
        self._stock_of_host(host).turn(host, "lost")

    def device_lost(self, device: int) -> None:
        self._stock[self.cluster.island_of_device(device).index].lose_device(device)

    def usable(self, device: int) -> bool:
        island = self.cluster.island_of_device(device)
        return bool(self._stock[island.index].alive[device - island.base_device])

    def load(self, device: int) -> int:
        """How many slices are bound there."""
        island = self.cluster.island_of_device(device)
        return self._stock[island.index].load[device - island.base_device]

    # --- slices ---------------------------------------------------------------------------------------------

    def bind(self, session: int, spec: SliceSpec) -> Bound | Waits:
        """At first use, and then the same until released. Raises Impossible."""
        known = self._bindings.get((session, spec.name))
        if known is None:
            refuse(self.cluster, spec)
            known = Binding(session, spec, self._tickets)
            self._tickets += 1
            known = self._settle(known)
        elif known.spec != spec:
            raise Impossible(
                f"this session's slice {spec.name!r} is bound as {wish(known.spec)}; "
                f"now it asks for {wish(spec)}: release it first, or give one of them another name"
            )
        return Bound(known.place) if known.place else Waits(known.reason, known.claim is None)

    def knows(self, session: int, name: str) -> bool:
        """Whether there is such a slice, bound or waiting."""
        return (session, name) in self._bindings

    def lacks_hosts(self, session: int, name: str) -> bool:
        """Whether this slice waits for hosts that are not there, whoever has the devices of the others."""
        known = self._bindings.get((session, name))
        return known is not None and known.place is None and known.claim is None

    def place(self, session: int, name: str) -> Place | None:
        known = self._bindings.get((session, name))
        return known.place if known else None

    def release(self, session: int, name: str) -> bool:
        """Whether there was one. Others may be waiting for it: `retry`."""
        known = self._bindings.pop((session, name), None)
        if known is None:
            return False
        self.version += 1
        self._waiting.pop(known.key, None)
        self._lift(known)
        return True

    def release_session(self, session: int) -> None:
        for key in [key for key in self._bindings if key[0] == session]:
            self.release(*key)

    def retry(self) -> list[tuple[int, str, Bound]]:
        """Waiting slices that have a place now. To be called after any change; renews all reasons."""
        found = []
        for key in list(self._waiting):
            now = self._settle(self._bindings[key])
            if now.place:
                found.append((*key, Bound(now.place)))
        return found

    def renewed(self) -> list[Binding]:
        """Those that wait, and whose reasons are others now: somebody was refused as a host, or is not any more."""
        found = []
        for key in self._waiting:
            known = self._bindings[key]
            reason = known.reason if known.claim else f"waits for {self._missing(known)}"
            if reason != known.reason:
                found.append(msgspec.structs.replace(known, reason=reason))
                self._bindings[key] = found[-1]
        return found

    def remap(self, island: int) -> list[Moved]:
        """New places for the slices that have lost a device, or whose host drains; everyone else stays. The
        oldest choose first: from their own island, then with all its spares, then from others."""
        gone = self._stock[island].gone()
        driven = [b for b in self._bindings.values() if b.place and b.place.island == island]
        driven = [b for b in driven if b.place and spans.overlap(device_spans(b.place), gone)] if gone else []
        for binding in driven:
            self._lift(binding)
        moved = []
        for binding in driven:
            old, rest = binding.place, msgspec.structs.replace(binding, place=None, home=island)
            now = self._settle(rest)
            if old:
                moved.append(Moved(*binding.key, old, now.place or Waits(now.reason)))
        order = sorted(self._waiting, key=lambda key: self._bindings[key].ticket)
        self._waiting = dict.fromkeys(order)
        return moved

    def bindings(self) -> tuple[Binding, ...]:
        """Everything, oldest first."""
        return tuple(self._bindings.values())

    def waiting(self) -> tuple[Binding, ...]:
        """In the order in which they will be served."""
        return tuple(self._bindings[key] for key in self._waiting)

    # --- how ------------------------------------------------------------------------------------------------

    def _settle(self, binding: Binding) -> Binding:
        """Bind it if it can be; else let it wait, with a claim and a reason that are up to date."""
        place = self._find(binding, anyway=False)
        if place:
            now = msgspec.structs.replace(binding, place=place, claim=None, reason="", home=-1)
            self._stock[place.island].put(place, binding.spec.exclusive)
            self._waiting.pop(binding.key, None)
        else:
            claim = self._claim(binding)
            reason = self._blockers(binding, claim) if claim else self._missing(binding)
            now = msgspec.structs.replace(binding, claim=claim, reason=f"waits for {reason}")
            self._waiting[binding.key] = None
        self._bindings[binding.key] = now
        self.version += 1
        return now

    def _lift(self, binding: Binding) -> None:
        if binding.place:
            self._stock[binding.place.island].put(binding.place, binding.spec.exclusive, MOVE)

    def _claim(self, binding: Binding) -> Place | None:
        """The one it has, if that can still be had; or a new one, away from the claims of others or at worst
        behind them; None where too few devices are there."""
        claim = binding.claim
        if claim and self._stock[claim.island].offers(claim, all_spares=claim.island == binding.home):
            return claim
        return self._find(binding, anyway=True) or self._find(binding, anyway=True, behind=True)

    def _find(self, binding: Binding, anyway: bool, behind: bool = False) -> Place | None:
        """`anyway`: where others are now, too; `behind`: even where others will be before."""
        spec = binding.spec
        claims = [] if behind else [b.claim for b in self._ahead(binding) if b.claim]
        for stocks, all_spares in self._tiers(binding, self._able(spec)):
            free: list[Free] = []
            for stock in stocks:
                barred = [claim for claim in claims if claim.island == stock.island.index]
                usable = stock.usable(spec.exclusive, barred, all_spares, anyway)
                free.append((stock.island, usable, stock.load))
            place = choose(spec, free)
            if place:
                return place
        return None

    @staticmethod
    def _tiers(binding: Binding, able: list[Inventory]) -> list[tuple[list[Inventory], bool]]:
        """Where to look, and whether all spares may be used; the next only if the last had nothing."""
        home = [stock for stock in able if stock.island.index == binding.home]
        if not home:
            return [(able, False)]
        return [(home, False), (home, True), ([stock for stock in able if stock not in home], False)]

    def _ahead(self, binding: Binding) -> list[Binding]:
        """Those with claims in line before this one, who could not share with it. Not those who wait for this very
        session: they cannot be served before it goes, and must not keep it from going."""
        line = [self._bindings[key] for key in self._waiting]
        mine = [b for b in self._bindings.values() if b.place and b.session == binding.session]
        return [
            b for b in line
            if b.claim and b.ticket < binding.ticket and self._at_odds(b, binding)
            and not any(self._at_odds(b, own) and self._meet(b.claim, own.place) for own in mine)
        ]  # fmt: skip

    @staticmethod
    def _meet(one: Place, other: Place | None) -> bool:
        return other is not None and spans.overlap(device_spans(one), device_spans(other))

    @staticmethod
    def _at_odds(one: Binding, other: Binding) -> bool:
        return one.spec.exclusive or other.spec.exclusive

    # --- what it waits for ----------------------------------------------------------------------------------

    def _blockers(self, binding: Binding, claim: Place) -> str:
        """Who has what it claims, or will have it first."""
        island = self.cluster.islands[claim.island]
        wanted = device_spans(claim)
        odd = [other for other in self._bindings.values() if self._at_odds(other, binding)]
        here = [b for b in odd if b.place and spans.overlap(device_spans(b.place), wanted)]
        first = [b for b in self._ahead(binding) if b.claim and spans.overlap(device_spans(b.claim), wanted)]
        text = (
            f"devices {spans.text(wanted[:8])}{', ...' if len(wanted) > 8 else ''} of island {island.name!r}"
        )
        for what, who in (("bound by", here), ("claimed before by", first)):
            if who:
                text += f", {what} {some([f'slice {b.spec.name!r} of session {b.session}' for b in who])}"
        return text

    def _missing(self, binding: Binding) -> str:
        """Too few devices are there, whoever has them: who is not here."""
        parts, able = [], self._able(binding.spec)
        for stock in able:
            where = f"of island {stock.island.name!r}"
            for state in ("absent", "lost", "draining"):
                hosts = stock.hosts_in(state)
                if hosts:
                    parts.append(f"hosts {spans.text(hosts)} {where} ({state})")
            broken = stock.broken()
            if broken:
                parts.append(f"devices {spans.text(broken)} {where} (lost)")
        return "; ".join([*parts, *self.refusals.words(stock.island.index for stock in able)])

    def _able(self, spec: SliceSpec) -> list[Inventory]:
        return [
            s for s in self._stock if spec.island in ("", s.island.name) and spec.kind in ("", s.island.kind)
        ]

    def _stock_of_host(self, host: int) -> Inventory:
        return self._stock[self.cluster.island_of_host(host).index]
