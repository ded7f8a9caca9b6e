"""Draws a case from a seed: a cluster, clients, programs, calls and faults (called troubles here).

Each kind of trouble has its own probability for a seed, so many seeds have no troubles and some have many.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from core.model.place import line
from core.model.plan import Layout, laid_out
from core.model.program import Arg, Node, Out, Program, Ref, SliceSpec, Value
from core.model.resharding import Shards

from . import case, programs
from .policies import RESERVING

POLICIES = ("fifo", "stride", "priority:age=1ms", "shortest", "deadline", "round_robin", "user", "faulty")
KIB = 1024

# The probability that a seed has any troubles of a kind, or a feature.
TROUBLES = {
    "crash host": 0.14, "leave": 0.06, "lose device": 0.06, "cut up": 0.10, "cut across": 0.12,
    "cut client": 0.06, "slow": 0.10, "crash client": 0.10, "restart": 0.07, "break gang": 0.14,
    "break code": 0.05,
}  # fmt: skip
FEATURES = {
    "pressure": 0.35, "moves": 0.75, "irregular": 0.25, "sparse": 0.25, "cancel": 0.2, "close": 0.1,
    "puts": 0.4, "gets": 0.5, "sequential": 0.2, "exclusive": 0.1, "late host": 0.05,
}  # fmt: skip


# Seeds below these numbers must not change, because they have found bugs.
SPANS = 200_000  # from this seed on, dispatch windows may have a span
ANEW = 400_000  # from this seed on, processes may be stopped, and take a while to be reached after a restart
PARTS = 1_000_000  # from this seed on, there are sub-slices and what else front ends need
RESERVES = 1_500_000  # from this seed on, most policies reserve devices
VIEWS = 2_000_000  # from this seed on, there are views of arrays
OLD_STATES = 20_000_000  # from this seed on, controllers are started with older copies of their state
FRONT = {"parts": 0.6, "meshes": 0.3, "silent": 0.25, "tell": 0.5}  # features only from seed PARTS on
ONE_WAY = 25_000_000  # from this seed on, connections are cut in one direction
RESHARDS = 30_000_000  # from this seed on, programs have nodes that only reshard, several arrays at once
ABSENT = 30_200_000  # from this seed on, calls that need a slice which is down may fail at once
OPERATED = 31_000_000  # from this seed on, slices are moved and suspended, and hosts are cordoned and drained
ACCOUNTS = 33_000_000  # from this seed on, clients belong to accounts
PREEMPTS = 34_000_000  # from this seed on, slices take devices of others
GROWING = 35_000_000  # from this seed on, clusters grow, among all that
RESTED = 36_000_000  # from this seed on, controllers are started again while slices are suspended
DISKS = 37_000_000  # from this seed on, hosts have disks behind their memory, some of which fail, and leave with time
DAMAGED = 37_500_000  # from this seed on, some files on those disks cannot be read
PLACES = 38_000_000  # from this seed on, most policies place slices
ALWAYS = {"views": VIEWS, "reshards": RESHARDS, "operate": OPERATED, "grow": GROWING}  # from these seeds on
LATER = {"stand still": 0.25, "break world": 0.1, "leave among puts": 0.15}  # troubles only from seed ANEW on


def draw(seed: int, without: frozenset[str] = frozenset()) -> case.Case:
    """Return the case of a seed. `without` are the names of troubles and features to leave out."""
    rng = Random(seed)
    calm = rng.random() < 0.4
    has = {name: rng.random() < chance and not calm and name not in without for name, chance in TROUBLES.items()}
    has |= {name: rng.random() < chance and name not in without for name, chance in FEATURES.items()}
    for name, chance in LATER.items() if seed >= ANEW else ():
        has[name] = rng.random() < chance and name not in without
    for name, chance in FRONT.items() if seed >= PARTS else ():
        has[name] = rng.random() < chance and name not in without
    has |= {name: name not in without for name, first in ALWAYS.items() if seed >= first}
    if seed >= OLD_STATES:
        has["old state"] = rng.random() < 0.8 and "old state" not in without
    if seed >= ONE_WAY:
        has["cut one way"] = rng.random() < 0.5 and "cut one way" not in without
    if seed >= OPERATED:
        for name in ("old state", "cut one way"):  # they would leave little to move
            has[name] = has[name] and rng.random() < 0.15
        has["puts"] = has["puts"] or "puts" not in without
    if seed >= PREEMPTS and (seed < GROWING or seed % 2):
        has["exclusive"] = "exclusive" not in without
        has["elastic"] = rng.random() < 0.6 and "elastic" not in without
    if seed >= RESTED:
        has["restart"] = rng.random() < 0.6 and "restart" not in without
    if seed >= DISKS:
        has["pressure"] = "pressure" not in without
    if seed >= ABSENT:
        has["absent"] = rng.random() < 0.6 and "absent" not in without
    return Drawing(rng, seed, has).whole()


class Drawing:
    def __init__(self, rng: Random, seed: int, has: dict[str, bool]) -> None:
        self.rng, self.seed, self.has = rng, seed, has
        self.islands: list[dict[str, int]] = []
        self.actions: list[case.Action] = []
        self.known: list[list[tuple[case.Source, Value]]] = []  # by client: buffers that it may use
        self.where: dict[case.Source, SliceSpec] = {}  # of what may be viewed
        self.now = 0
        self.keys = 0

    def whole(self) -> case.Case:
        setup = self._setup()
        self.slices = [self._slices(client) for client in range(len(setup.people))]
        self.programs: list[Program] = []
        self.mine: list[list[int]] = []
        style = self._style()
        for client in range(len(setup.people)):
            self.mine.append([])
            for _ in range(self.rng.randint(1, 3)):
                self.mine[client].append(len(self.programs))
                name = f"p{len(self.programs)}"
                program = programs.draw(self.rng, name, self.slices[client], style)
                self.programs.append(programs.with_parents(program, self.slices[client]))
        self.known = [[] for _ in setup.people]
        self.submitted: list[list[int]] = [[] for _ in setup.people]
        self._calls(setup)
        if self.has.get("tell"):
            self._registrations()
        self._troubles()
        if self.has.get("cut one way"):
            self._cuts_one_way()
        if self.has.get("operate"):
            self._operations(len(setup.people))
        if self.has.get("elastic"):
            self._elastics(len(setup.people))
        if self.has.get("grow"):
            setup = msgspec.structs.replace(setup, begins=self._growth())
        # stable: at one time, in the order drawn
        actions = tuple(sorted(self.actions, key=lambda action: action.at))
        return case.Case(self.seed, setup, tuple(self.programs), actions)

    def _operations(self, people: int) -> None:
        rng, hosts = self.rng, sum(island["hosts"] for island in self.islands)
        for _ in range(rng.randint(2, 16)):
            at = rng.randint(0, self.end)
            if rng.random() < 0.7:
                what = rng.choice(("move", "suspend" if self.seed >= RESTED else "move", "suspend", "resume"))
                away = rng.randrange(hosts) if rng.random() < 0.5 else -1
                itself = rng.random() < 0.3
                self.actions.append(case.Operate(at=at, of=rng.randrange(people), itself=itself, what=what, away=away))
            else:
                what, patience = rng.choice(("cordon", "drain", "drain", "uncordon")), 0
                if what == "drain" and rng.random() < 0.4:
                    patience = rng.randint(1, 100) * case.MS
                self.actions.append(case.OperateHost(at=at, host=rng.randrange(hosts), what=what, patience=patience))

    def _growth(self) -> case.Begin:
        """Returns with what the cluster begins. It grows to all of it in one to three steps."""
        rng = self.rng
        steps = [
            (number, hosts)
            for number, island in enumerate(self.islands, 1)
            for hosts in range(island["spares"] + 1, island["hosts"] + 1)
        ]
        whole = steps.pop()
        # an island that does not begin as it will be, and is not the last then, never takes more hosts
        full = [(number, hosts) for number, hosts in steps if hosts == self.islands[number - 1]["hosts"]]
        last = [(number, hosts) for number, hosts in steps if number == whole[0]]
        found = sorted(rng.sample(full + last, min(rng.choice((1, 1, 2, 3)), len(full + last))))
        if found and found[0][0] > 1 and rng.random() < 0.5:  # the first step adds hosts and islands
            number = found[0][0] - 1
            found.insert(0, (number, rng.randint(self.islands[number - 1]["spares"] + 1, full[number - 1][1])))
        for to in [*found[1:], whole] if found else []:
            at, come = rng.randint(0, self.end), rng.choice((0, 0, 1 * case.MS, 90 * case.MS))
            self.actions.append(case.Grow(at=at, to=to, come=come))
        return found[0] if found else (0, 0)

    def _elastics(self, people: int) -> None:
        rng = self.rng
        for client in range(people):
            if rng.random() < 0.6:
                sizes = tuple(sorted(rng.sample(range(1, 9), rng.randint(1, 4))))
                like = SliceSpec("like", 1, exclusive=rng.random() < 0.7, layout=rng.choice(("packed", "spread")))
                at, after = rng.randint(0, self.end), rng.choice((0, 100 * case.US, 5 * case.MS))
                # and nothing else: it could wait for another slice of its own session
                kept = (case.Close, case.CrashClient)
                self.actions = [a for a in self.actions if isinstance(a, kept) or getattr(a, "client", -1) != client]
                self.actions.append(case.AskElastic(at=at, client=client, sizes=sizes, like=like, after=after))

    # --- the set-up ---------------------------------------------------------------------------------------------

    def _setup(self) -> case.Setup:
        rng = self.rng
        tight = self.has["pressure"]
        memory = rng.choice((2, 4, 8, 16)) * KIB if tight else 1 << 30
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
            hosts = rng.choice((1, 2, 2, 3, 4, 5, 6)) if len(self.islands) < 1 else rng.choice((1, 2, 3))
            spares = 1 if hosts > 1 and rng.random() < 0.15 else 0
            host_memory = rng.choice((0, 4 * KIB, 1 << 30)) if tight else 1 << 30
            island = {
                "hosts": hosts, "devices_per_host": rng.choice((1, 1, 2, 2, 4)), "memory": memory,
                "host_memory": host_memory, "spares": spares,
            }  # fmt: skip
            if self.seed >= DISKS:
                room = rng.choice((0, 0, 1, 4)) * KIB if tight else host_memory
                island |= {"host_memory": room, "host_disk": rng.choice((0, 4 * KIB, 1 << 30, 1 << 30))}
            self.islands.append(island)
        people = tuple(self._person(number) for number in range(rng.choice((1, 2, 2, 3, 4))))
        jitter = rng.choice((0, 0, 20 * case.US, 300 * case.US))
        chunk = rng.choice((256, 1 << 10, 1 << 12))
        policy, window, passes = self._policy(), rng.choice((1, 2, 4, 8)), rng.choice((0, 2, 8))
        early, fanout = rng.choice(("always", "idle", "idle", "never")), rng.choice((1, 1, 2, 3, 23))
        rng.random()  # an option that is gone: each seed draws what it drew before
        return case.Setup(
            tuple(self.islands), people, policy=policy, window=window, max_passes=passes, early=early, fanout=fanout,
            lane=rng.choice(("host", "host", "device")),
            pool=rng.choice((2 * chunk, 4 * chunk, 1 << 20)), chunk=chunk, jitter=jitter,
            compile=rng.choice((100 * case.US, 1 * case.MS, 5 * case.MS)), roomy=not tight,
            span=rng.choice((0, 1 * case.MS, 5 * case.MS)) if self.seed >= SPANS else 0,
            reach=rng.choice((0, 1 * case.MS, 20 * case.MS)) if self.seed >= ANEW else 0,
            accounts=rng.choice((0, 1, 2)) if self.seed >= ACCOUNTS else 0,
            preempt=rng.choice(((1, 10), (5, 30), (20, 100))) if self.seed >= PREEMPTS else (10_000, 600_000),
            disk_fails=rng.choice((0, 0, 0, 1, 2, 5)) if self.seed >= DISKS else 0,
            damaged=rng.choice((1, 2, 3, 5)) if self.seed >= DAMAGED else 0,
        )  # fmt: skip

    def _policy(self) -> str:
        if self.seed >= PREEMPTS:
            names: list[str] = ["priority:age=1ms", "taking", *["placing"] * (4 if self.seed >= PLACES else 0)]
            return self.rng.choice(names)
        reserving = self.seed >= RESERVES and self.rng.random() < 0.8
        return self.rng.choice(RESERVING if reserving else POLICIES)

    def _person(self, number: int) -> case.ClientSpec:
        rng = self.rng
        late = rng.choice((0, 0, rng.randrange(8 * case.MS)))
        return case.ClientSpec(f"c{number}", rng.choice((1, 1, 2, 5)), rng.choice((0, 0, 1)), late)

    def _slices(self, client: int) -> list[SliceSpec]:
        """Draw the slices of one session. Each fits on its own."""
        rng, found = self.rng, []
        sizes = [i["devices_per_host"] * (i["hosts"] - i["spares"]) for i in self.islands]
        for number in range(rng.randint(1, 4) if self.has["moves"] else 1):
            island = rng.randrange(len(sizes))
            devices = rng.choice([n for n in (1, 2, 2, 3, 4, 4, 6, 8, 16) if n <= sizes[island]])
            mesh: tuple[int, ...] = ()
            alone = self.has["exclusive"] and rng.random() < 0.5
            if devices in (4, 6, 8) and rng.random() < 0.4 and not alone:
                mesh = (2, devices // 2)
            where = f"i{island}" if rng.random() < 0.7 else ""
            layout: Any = rng.choice(("packed", "packed", "spread"))
            absent: Any = rng.choice(("wait", "fail", "fail")) if self.has.get("absent") else "wait"
            found.append(SliceSpec(f"s{number}", devices, mesh, "", where, layout, alone, absent=absent))
            if alone:
                found = found[-1:]  # otherwise it could wait for another slice of its own session
                break
        return found + self._parts(found) if self.has.get("parts") else found

    def _parts(self, slices: list[SliceSpec]) -> list[SliceSpec]:
        """Draw sub-slices of a session's slices."""
        rng, found = self.rng, []
        for number in range(rng.randint(1, 4)):
            whole = rng.choice(slices)
            picks = tuple(rng.sample(range(whole.devices), rng.randint(1, min(whole.devices, 4))))
            if rng.random() < 0.3:
                picks = tuple(sorted(picks))
            found.append(SliceSpec(f"part{number}", len(picks), of=whole.name, picks=picks))
        return found

    def _style(self) -> programs.Style:
        rng, has = self.rng, self.has
        memory = self.islands[0]["memory"]
        return programs.Style(
            nodes=rng.choice((2, 5, 10)),
            temp=memory // 4 if has["pressure"] else rng.choice((0, 4 * KIB)),
            moves=has["moves"],
            irregular=rng.choice((0.1, 0.4)) if has["irregular"] else 0.0,
            sparse=rng.choice((0.1, 0.4)) if has["sparse"] and has["moves"] else 0.0,
            donation=rng.choice((0.0, 0.3, 0.7)),
            collective=rng.choice((1.0, 0.7, 0.0)),
            meshes=rng.choice((0.2, 0.8)) if has.get("meshes") else 0.0,
            silent=rng.choice((0.2, 0.6)) if has.get("silent") else 0.0,
            reshard=rng.choice((0.2, 0.7)) if has.get("reshards") else 0.0,
        )

    # --- what clients do ------------------------------------------------------------------------------------------

    def _calls(self, setup: case.Setup) -> None:
        rng = self.rng
        pace = rng.choice((20 * case.US, 200 * case.US, 1 * case.MS, 4 * case.MS))
        for _ in range(rng.choice((5, 15, 30, 45))):
            self.now += int(rng.expovariate(1 / pace))
            self._call(rng.randrange(len(setup.people)))
        self.end = self.now + 2 * case.MS
        for client in range(len(setup.people)):
            if self.has["close"] and rng.random() < 0.4:
                self.actions.append(case.Close(at=rng.randrange(self.end), client=client))
            if self.has["crash client"] and rng.random() < 0.4:
                self.actions.append(case.CrashClient(at=rng.randrange(self.end), client=client))

    def _call(self, client: int) -> None:
        rng, has = self.rng, self.has
        if has.get("views") and rng.random() < 0.3 and self._view(client):
            return
        kind = rng.random()
        if kind < 0.1 and has["puts"]:
            self._put(client)
        elif kind < 0.2 and has["gets"] and self.known[client]:
            self.actions.append(case.Get(at=self.now, client=client, of=rng.choice(self.known[client])[0]))
        elif kind < 0.38 and self.known[client]:
            self.actions.append(case.Release(at=self.now, client=client, of=self._forget(client)))
        elif kind < 0.45 and has["cancel"] and self.submitted[client]:
            key = rng.choice(self.submitted[client][-3:])
            kind_of = case.Cancel if key % 3 else case.Stop
            at = self.now + rng.choice((0, rng.randrange(2 * case.MS)))
            self.actions.append(kind_of(at=at, client=client, key=key))
        else:
            self._submit(client)

    def _registrations(self) -> None:
        """Programs of which clients want to hear that they are compiled."""
        for _ in range(self.rng.choice((1, 3, 6))):
            client, at, key = self.rng.randrange(len(self.mine)), self.rng.randrange(self.end), self._key()
            number = self.rng.choice(self.mine[client])
            self.actions.append(case.Register(at=at, key=key, client=client, program=number))
            if self.rng.random() < 0.3:
                later = at + self.rng.choice((0, self.rng.randrange(8 * case.MS)))
                self.actions.append(case.Unregister(at=later, client=client, key=key))

    def _forget(self, client: int) -> case.Source:
        known = self.known[client]
        return known.pop(self.rng.randrange(len(known)))[0]

    def _key(self) -> int:
        self.keys += 1
        return self.keys

    def _put(self, client: int) -> None:
        rng = self.rng
        program = self.programs[rng.choice(self.mine[client])]
        if not program.args:
            return
        value = rng.choice(program.args)
        spec = program.slices[value.slice]
        key = self._key()
        value = msgspec.structs.replace(value, slice=0)
        parent = next((each for each in program.slices if each.name == spec.of), None)
        self.actions.append(case.Put(at=self.now, key=key, client=client, value=value, slice=spec, parent=parent))
        self.known[client].append(((key, 0), value))
        self.where[key, 0] = spec

    def _view(self, client: int) -> bool:
        """A shard, or an array of shards of those that are alike; False if there is nothing to view."""
        rng = self.rng
        there = [(source, value) for source, value in self.known[client] if source in self.where]
        if not there:
            return False
        source, value = rng.choice(there[-6:])
        spec, key = self.where[source], self._key()
        shards = numbered_shards(value, spec)
        if rng.random() < 0.5:
            at = rng.randrange(spec.devices)
            whole, pick = (spec.of, spec.picks[at]) if spec.of else (spec.name, at)
            made = Value(shard_shape(value, spec), value.dtype)
            on = SliceSpec(f"{whole}[{pick}]", 1, of=whole, picks=(pick,))
            of: tuple[tuple[case.Source, int], ...] = ((source, shards[at]),)
        else:
            made, on, parts = value, spec, list[tuple[case.Source, int]]()
            for at, shard in enumerate(shards):
                whole, pick = (spec.of, spec.picks[at]) if spec.of else (spec.name, at)
                alike = [(each, shard) for each, v in there if self.where[each] == spec and _same(v, value)]
                alone = SliceSpec(f"{whole}[{pick}]", 1, of=whole, picks=(pick,))
                shape = shard_shape(value, spec)
                alike += [(each, 0) for each, v in there if self.where[each] == alone and v.shape == shape]
                parts.append(rng.choice([each for each in alike if self._type(client, each[0]) == value.dtype]))
            of = tuple(parts)
        self.actions.append(case.View(at=self.now, key=key, client=client, value=made, slice=on, of=of))
        self.known[client].append(((key, 0), made))
        self.where[key, 0] = on
        return True

    def _type(self, client: int, source: case.Source) -> str:
        return next(value.dtype for each, value in self.known[client] if each == source)

    def _submit(self, client: int) -> None:
        rng = self.rng
        number = rng.choice(self.mine[client])
        program = self.programs[number]
        args: list[case.Source] = []
        for index, wanted in enumerate(program.args):
            fit = [s for s, v in self.known[client] if (v.shape, v.dtype) == (wanted.shape, wanted.dtype)]
            fit = [source for source in fit if source not in args]
            source = rng.choice(fit[-3:]) if fit and rng.random() < 0.75 else case.LITERAL
            if index in program.donate_args and source != case.LITERAL:
                self.known[client] = [(s, v) for s, v in self.known[client] if s != source]
            args.append(source)
        key = self._key()
        keep = tuple(rng.random() < 0.8 for _ in program.results)
        dispatch = "sequential" if self.has["sequential"] and rng.random() < 0.4 else "parallel"
        deadline = self.now + rng.randrange(20 * case.MS) if rng.random() < 0.2 else 0
        self.actions.append(
            case.Submit(
                at=self.now, key=key, client=client, program=number, args=tuple(args), keep=keep, dispatch=dispatch,
                deadline=deadline,
            )
        )  # fmt: skip
        self.submitted[client].append(key)
        for index, ref in enumerate(program.results):
            if keep[index]:
                value = value_of(program, ref)
                self.known[client].append(((key, index), value))
                node = program.nodes[ref.node] if isinstance(ref, Out) else None
                if isinstance(node, Node) and not node.irregular:
                    self.where[key, index] = program.slices[value.slice]

    # --- troubles -----------------------------------------------------------------------------------------------

    def _troubles(self) -> None:
        rng, has = self.rng, self.has
        hosts = sum(island["hosts"] for island in self.islands)
        self._host_troubles(hosts)
        if has["cut up"]:
            for _ in range(self.rng.choice((1, 2, 3))):
                self._cut("controller", f"host {self.rng.randrange(hosts)}")
        if has["cut across"]:
            for _ in range(self.rng.choice((1, 2, 4))):
                near, far = self.rng.randrange(hosts), self.rng.randrange(hosts)
                if near != far:
                    self._cut(f"host {near}", f"host {far}")
        if has["cut client"]:
            other = self.rng.choice(("controller", f"host {self.rng.randrange(hosts)}"))
            self._cut(f"client c{self.rng.randrange(len(self.known))}", other)
        for _ in range(self.rng.choice((1, 2)) if has["restart"] else 0):
            self._add_trouble(case.Restart)
        self._program_troubles(hosts)
        for _ in range(rng.choice((1, 1, 2, 3)) if has.get("stand still") else 0):
            clients = [f"client c{number}" for number in range(len(self.known))]
            process = rng.choice(("controller", rng.choice(clients), f"host {rng.randrange(hosts)}"))
            length = rng.choice((1 * case.MS, 70 * case.MS, 90 * case.MS, 200 * case.MS, 400 * case.MS))
            self._add_trouble(case.StandStill, who=process, length=length)
        if has.get("leave among puts"):
            at = rng.randrange(self.end)
            self.actions.append(case.LeaveHost(at=at, host=rng.randrange(hosts)))
            for _ in range(4):
                self.now = at + rng.randrange(2 * case.MS)
                self._put(rng.randrange(len(self.known)))
        if has.get("break world"):
            self._add_trouble(case.BreakWorld, island=rng.randrange(len(self.islands)))

    def _host_troubles(self, hosts: int) -> None:
        rng, has = self.rng, self.has
        for _ in range(rng.choice((1, 1, 2, 3)) if has["crash host"] else 0):
            back = rng.choice((0, 1, 100 * case.US, 5 * case.MS))
            self._add_trouble(case.CrashHost, host=rng.randrange(hosts), back=back)
        if has["late host"]:
            self.actions.append(case.CrashHost(at=0, host=rng.randrange(hosts), back=rng.randrange(1, 12 * case.MS)))
        if has["leave"]:
            patience = rng.choice((0, 5, 100)) * case.MS if self.seed >= DISKS else 0
            self._add_trouble(case.LeaveHost, host=rng.randrange(hosts), patience=patience)
        if has["lose device"]:
            devices = sum(island["hosts"] * island["devices_per_host"] for island in self.islands)
            self._add_trouble(case.LoseDevice, device=rng.randrange(devices))
        if has.get("old state"):
            self._old_state()
        for _ in range(rng.choice((1, 2)) if has["slow"] else 0):
            lag = rng.choice((0, 10 * case.US, 500 * case.US))
            self._add_trouble(case.Slow, host=rng.randrange(hosts), factor=rng.choice((1.0, 3.0, 50.0)), lag=lag)

    def _old_state(self) -> None:
        rng = self.rng
        half = self.end // 2
        for _ in range(rng.choice((1, 1, 2))):
            self.actions.append(case.Restart(at=rng.randrange(half)))
        if rng.random() < 0.2:
            self._add_trouble(case.Restart)
        behind, mend = (rng.choice((1, 1, 2)), rng.choice((0, 1 * case.MS, 5 * case.MS, 300 * case.MS, 900 * case.MS)))
        at = rng.randrange(half, self.end)
        self.actions.append(case.OldState(at=at, behind=behind, forget=rng.random() < 0.4, mend=mend))

    def _program_troubles(self, hosts: int) -> None:
        rng, names = self.rng, self._names()
        for _ in range(rng.choice((1, 2, 4)) if self.has["break gang"] and names else 0):
            when = rng.choice(("run", "run", "launch"))
            host = rng.choice((case.ALL, case.ALL, rng.randrange(hosts)))
            self._add_trouble(case.BreakGang, host=host, name=rng.choice(names), when=when)
        codes = [comp.name for program in self.programs for comp in program.computations]
        if self.has["break code"] and codes:
            self.actions.append(case.BreakCode(at=0, name=rng.choice(codes)))

    def _names(self) -> list[str]:
        nodes = [node for program in self.programs for node in program.nodes]
        return [node.name for node in nodes if isinstance(node, Node)]

    def _add_trouble(self, kind: Any, **fields: Any) -> None:
        start = 3 * case.MS if self.end > 4 * case.MS and self.rng.random() < 0.8 else 0
        self.actions.append(kind(at=self.rng.randrange(start, self.end), **fields))

    def _cut(self, one: str, other: str) -> None:
        mend = self.rng.choice((0, 100 * case.US, 5 * case.MS, 300 * case.MS))
        self._add_trouble(case.Cut, one=one, other=other, silent=self.rng.random() < 0.4, mend=mend)

    def _cuts_one_way(self) -> None:
        hosts = sum(island["hosts"] for island in self.islands)
        for _ in range(self.rng.choice((1, 2, 4))):
            self._cut_one_way(hosts)

    def _cut_one_way(self, hosts: int) -> None:
        """Between any two processes that have a connection, in either direction."""
        rng = self.rng
        host, client = f"host {rng.randrange(hosts)}", f"client c{rng.randrange(len(self.known))}"
        pairs = [(client, "controller"), (client, "controller"), (host, "controller"), (client, host)]
        pair = rng.choice([*pairs, (host, f"host {rng.randrange(hosts)}")])
        if pair[0] != pair[1]:
            one, other = pair if rng.random() < 0.5 else pair[::-1]
            mend = rng.choice((5 * case.MS, 60 * case.MS, 110 * case.MS, 300 * case.MS))
            self._add_trouble(case.Cut, one=one, other=other, silent=False, mend=mend, one_way=True)


def value_of(program: Program, ref: Ref) -> Value:
    if isinstance(ref, Arg):
        return program.args[ref.index]
    return program.nodes[ref.node].outputs[ref.output]


def _same(one: Value, other: Value) -> bool:
    return (one.shape, one.sharding) == (other.shape, other.sharding)


def _lies(value: Value, spec: SliceSpec) -> Layout:
    return laid_out(value, spec, line(0, 0, spec.devices))


def numbered_shards(value: Value, spec: SliceSpec) -> list[int]:
    """By device of the slice: which of the distinct shards it has."""
    shards = Shards(_lies(value, spec))
    return [shards.ordinal(shards.shard_of(at)) for at in range(spec.devices)]


def shard_shape(value: Value, spec: SliceSpec) -> tuple[int, ...]:
    return Shards(_lies(value, spec)).size
