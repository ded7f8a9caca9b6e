"""The faults, their targets and times, as plain data: drawn from one seed, printed as lines, and read back from them.

A fault with a `gap` follows the one before it after so many seconds, whether the cluster has recovered or not (a
burst). A fault without a gap waits until it has. So any fault of a schedule can be left out, and what remains is a
schedule.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

# What is under way when the fault comes: the beginning of a call's name, and the roles of clients that make such calls.
# An epoch is no call: an island forms.
MOMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "compile": ("compile", ("train", "jax")),
    "save": ("save", ("train", "saves", "jax")),
    "put": ("put 64MB", ("puts", "jax")),
    "epoch": ("", ()),
    "get": ("get", ("reads",)),
    "given": ("given", ("given",)),
    "many": ("many", ("many",)),
    "move": ("move", ("moves", "slices")),
}
PROCESS = {"kill": 40, "stop": 35, "terminate": 12, "pulse": 8}
WIRE = {"cut": 5, "hold": 5, "up": 3, "down": 3, "delay": 3}
REST = {"suspend": 30}  # by the operator; it is resumed when the fault is over
# By the operator, where clients leave hosts free: slices of a client go elsewhere, and back when it is over; a host is
# emptied and its agent ends, until its cordon is lifted when it is over; the last island gets another host for good.
ELSEWHERE = {"client": {"move": 60}, "agent": {"drain": 100}, "controller": {"grow": 20}}
COORDINATION = {"kill": 60, "stop": 20, "terminate": 20}
KINDS: dict[str, dict[str, int]] = {
    "agent": PROCESS | WIRE | {"full": 4},
    "controller": PROCESS | {"full": 4},
    "coordination": COORDINATION,
    "client": PROCESS | WIRE | REST,
    "door": PROCESS | WIRE,
    "peers": WIRE,
}
TARGETS = {"agent": 45, "controller": 28, "coordination": 10, "client": 17, "door": 17, "peers": 8}
# The same for processes that are on machines of their own. PLACE: what befalls such a machine; HELD: the process on it.
PLACE = {"unplug": 8, "delay": 8, "loss": 8, "rate": 8, "clock": 6}
HELD = {"disk": 6, "files": 6, "memory": 6}
ON_MACHINES: dict[str, dict[str, int]] = {
    "agent": PROCESS | PLACE | HELD | {"address": 10},
    "controller": PROCESS | PLACE | HELD | {"flip": 6, "truncate": 6, "old": 6},
    "coordination": COORDINATION,
    "client": PROCESS | PLACE | REST,
    "door": PROCESS | PLACE,
    "link": {"cut": 1},
    "checker": {"kill": 1},
}
MACHINE_TARGETS = {
    "agent": 40, "controller": 25, "coordination": 6, "client": 12, "door": 12, "link": 45, "checker": 10,
}  # fmt: skip
FILES = ("state", "agents", "code")
STATE = ("flip", "truncate", "old")  # what befalls the controller's state between two starts
RESTARTS = ("kill", "terminate", "address", "files", *STATE)  # the process is ended, and started again
# the roles of clients that have a door: a wire of theirs is the door's. `slices` has all islands, `jax` one
JAX_ROLES = ("jax", "slices")
LONGEST = 60.0  # seconds that a process is stopped, at most
RARE = 0.04  # part of the stops that are drawn up to that; all others are around the lease


class Shape(msgspec.Struct, frozen=True):
    """The cluster that faults are drawn for. `clients`: by name."""

    islands: int = 2
    hosts: int = 2  # of each island
    clients: tuple[str, ...] = ()
    lease: float = 3.0
    platform: str = "cpu"
    together: int = 1  # hosts that one agent plays
    machines: bool = False  # each process is on one of its own
    checked: bool = False  # agents do not trust clients: a child of theirs tries code first
    spare: int = 0  # hosts of each island that clients leave free

    @property
    def kinds(self) -> dict[str, dict[str, int]]:
        kinds = ON_MACHINES if self.machines else KINDS
        if not self.spare:
            return kinds
        more = {role: weights for role, weights in ELSEWHERE.items() if role != "controller" or not self.machines}
        return {role: weights | more.get(role, {}) for role, weights in kinds.items()}

    @property
    def agents(self) -> int:
        return self.islands * self.hosts // self.together

    @property
    def moments(self) -> tuple[str, ...]:
        """Those that these clients have."""
        roles = {name.partition("-")[0] for name in self.clients}
        return tuple(moment for moment, (_, needs) in MOMENTS.items() if moment == "epoch" or roles.intersection(needs))

    @property
    def doors(self) -> tuple[str, ...]:
        """The clients that have one."""
        return tuple(name for name in self.clients if _behind_door(name))


class Fault(msgspec.Struct, frozen=True):
    kind: str
    # "agent-3", "controller", "coordination-0" (of an island), "client-NAME", "door-NAME" (that client's), "peers-3"
    # (all that dial that agent), "checker-3" (a child of that agent); "A>B": what A sends to B; "A=B": both ways
    target: str
    lasts: float = 0.0  # seconds, of a fault that has a length
    restart: float = 0.0  # seconds after its end in which the supervisor starts a process again
    file: str = "state"  # which of the controller's files is damaged: its own state, its agents', or clients' code
    port: str = "same"  # the port that an agent listens on afterwards; or "other"
    moment: str = ""  # one of MOMENTS
    gap: float | None = None

    @property
    def role(self) -> str:
        return _role(self.target)

    @property
    def link(self) -> tuple[str, str, bool]:
        """The ends of a link, and whether both directions are meant."""
        one, sign, other = self.target.partition("=" if "=" in self.target else ">")
        return one, other, sign == "="

    @property
    def number(self) -> int:
        """The number of an agent or a coordination process."""
        return int(self.target.partition("-")[2])

    @property
    def name(self) -> str:
        """Of a client."""
        return self.target.partition("-")[2]

    @property
    def ends_process(self) -> bool:
        return self.kind in ("kill", "terminate")

    def line(self) -> str:
        words = [self.kind, self.target]
        for name, default in (
            ("lasts", 0.0),
            ("restart", 0.0),
            ("file", "state"),
            ("port", "same"),
            ("moment", ""),
            ("gap", None),
        ):
            if (value := getattr(self, name)) != default:
                words.append(f"{name}={value}")
        return " ".join(words)


Schedule = tuple[Fault, ...]


def text(schedule: Sequence[Fault]) -> str:
    return "\n".join(fault.line() for fault in schedule)


def parse(lines: str) -> Schedule:
    """Read what `text` wrote. `;` may stand for a new line, and `#` begins a comment."""
    found = []
    for raw in lines.replace(";", "\n").splitlines():
        words = raw.partition("#")[0].split()
        if words:
            found.append(_fault(words, raw.strip()))
    return tuple(found)


def _fault(words: list[str], line: str) -> Fault:
    if len(words) < 2:
        raise ValueError(f"{line!r}: a fault is a kind, a target and options, as 'kill agent-1 restart=0.3'")
    kind, target = words[:2]
    role = _role(target)
    ends = target.replace("=", ">").split(">") if role == "link" else [target]
    if len(ends) > 2 or any(_role(end) not in ("agent", "controller", "client", "door") for end in ends[1:]):
        role = ""
    if any(
        _role(end) not in {*KINDS, *ON_MACHINES} or (end != "controller" and not end.partition("-")[2]) for end in ends
    ):
        role = ""
    if not role:
        raise ValueError(
            f"{line!r}: a target is controller, agent-N, peers-N, coordination-ISLAND, client-NAME, door-NAME, "
            "checker-N, or a link, as agent-0>controller (one way) or agent-0=agent-1"
        )
    kinds = [*dict.fromkeys([*_kinds(target, KINDS), *_kinds(target, ON_MACHINES), *_kinds(target, ELSEWHERE)])]
    if kind not in kinds:
        raise ValueError(f"{line!r}: what befalls a {role} is one of {', '.join(kinds)}")
    options: dict[str, object] = {}
    for word in words[2:]:
        name, _, value = word.partition("=")
        if name in ("lasts", "restart", "gap"):
            options[name] = float(value)
        elif value in {"port": ("same", "other"), "file": FILES, "moment": MOMENTS}.get(name, ()):
            options[name] = value
        else:
            raise ValueError(
                f"{line!r}: {word!r} is none of lasts=, restart=, gap=, port=same|other, "
                "file=state|agents|code, moment=..."
            )
    return Fault(kind, target, **options)  # type: ignore[arg-type]


def draw(seed: int, shape: Shape) -> Iterator[Fault]:
    """Draw faults without end. The first hundred of a seed are the same however many are taken."""
    chance = random.Random(f"chaos {seed}")
    before: Fault | None = None
    while True:
        before = _draw(chance, shape, before)
        yield before


def first(count: int, seed: int, shape: Shape) -> Schedule:
    return tuple(islice(draw(seed, shape), count))


def rounds(faults: Iterator[Fault] | Sequence[Fault]) -> Iterator[Schedule]:
    """Faults that come together: one, and those that follow it after a gap."""
    together: list[Fault] = []
    for fault in faults:
        if together and fault.gap is None:
            yield tuple(together)
            together = []
        together.append(fault)
    if together:
        yield tuple(together)


def misfit(schedule: Schedule, shape: Shape) -> str:
    """What of this schedule cannot befall this cluster; "" if all can."""
    for fault in schedule:
        if fault.kind in ("move", "drain", "grow") and not shape.spare:
            return f"{fault.line()!r} needs hosts that clients leave free: --spare"
        if fault.kind not in _kinds(fault.target, shape.kinds):
            return (
                f"{fault.line()!r} needs {'processes' if shape.machines else '--machines'}"
                f"{' instead of --machines' if shape.machines else ''}"
            )
    return ""


def _draw(chance: random.Random, shape: Shape, before: Fault | None) -> Fault:
    targets = MACHINE_TARGETS if shape.machines else TARGETS
    role = _weighted(chance, {name: weight for name, weight in targets.items() if _has(shape, name)})
    target = _target(chance, shape, role)
    kind = _weighted(chance, _kinds(target, shape.kinds))
    restart = round(chance.uniform(0.0, 0.5), 2) if chance.random() < 0.6 else 3.0
    port = "other" if role == "agent" and chance.random() < 0.2 else "same"
    lasts = _lasts(chance, kind, role, shape.lease)
    moment = chance.choice(shape.moments) if chance.random() < 0.25 else ""
    gap: float | None = round(chance.uniform(0.0, 2.0 * shape.lease), 2)
    if before is None or before.gap is not None or chance.random() > 0.3:
        gap = None  # at most two in a row
    file = chance.choice(FILES) if kind in ("flip", "truncate") else "state"
    ends = kind in RESTARTS and role not in ("coordination", "checker")
    return Fault(
        kind, target, lasts, restart if ends else 0.0, file, port if ends and kind in PROCESS else "same", moment, gap
    )


def _has(shape: Shape, role: str) -> bool:
    if role == "client":
        return bool(shape.clients)
    if role == "door":
        return bool(shape.doors)
    if role == "peers":
        return shape.together == 1 and (bool(shape.clients) or shape.hosts > 1)
    if role == "checker":
        return shape.checked and shape.platform == "cpu"
    return role != "coordination" or (shape.platform == "cpu" and shape.hosts > 1)


def _target(chance: random.Random, shape: Shape, role: str) -> str:
    if role == "link":
        one, other = chance.sample(["controller", *_machines(chance, shape)], 2)
        return f"{one}{chance.choice('>=>')}{other}"
    if role in ("agent", "peers", "checker"):
        return f"{role}-{chance.randrange(shape.agents)}"
    if role == "coordination":
        return f"coordination-{chance.randrange(shape.islands)}"
    if role == "door":
        return f"door-{chance.choice(shape.doors)}"
    return f"client-{chance.choice(shape.clients)}" if role == "client" else role


def _machines(chance: random.Random, shape: Shape) -> list[str]:
    """Two agents and a client: so links of each kind are as frequent."""
    agents = [f"agent-{number}" for number in chance.sample(range(shape.agents), min(2, shape.agents))]
    if not shape.clients:
        return agents
    client = chance.choice(shape.clients)
    return [*agents, f"{'door' if _behind_door(client) else 'client'}-{client}"]


def _behind_door(client: str) -> bool:
    return client.partition("-")[0] in JAX_ROLES


def _role(target: str) -> str:
    return "link" if "=" in target or ">" in target else target.partition("-")[0]


def _kinds(target: str, kinds: dict[str, dict[str, int]]) -> dict[str, int]:
    """What may befall this target."""
    role, _, name = target.partition("-")
    if role == "client" and _behind_door(name):
        return PROCESS | {kind: weight for kind, weight in kinds.get(role, {}).items() if kind in ("suspend", "move")}
    return kinds.get(_role(target), {})


def _lasts(chance: random.Random, kind: str, role: str, lease: float) -> float:
    """Draw a length around the lease, by the logarithm: most are short, so that many faults fit into minutes."""
    if kind in ("kill", "terminate", "grow"):
        return 0.0
    if kind == "cut" and role != "link":
        return round(chance.uniform(0.0, lease), 2)
    longest = LONGEST if chance.random() < RARE else 4.0 * lease
    if kind in ("pulse", "delay", "full", "suspend", "move"):
        longest = 2.0 * lease
    return round(math.exp(chance.uniform(math.log(0.5), math.log(max(0.6, longest)))), 2)


def _weighted(chance: random.Random, weights: dict[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]
