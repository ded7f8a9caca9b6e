"""Whatever a peer says, in whatever state the controller is, nothing raises there: at worst that peer is closed."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from core.controller import Config, Controller
from core.link import codec as wire
from core.model import spans
from core.model.program import SliceSpec, Value
from core.model.topology import Cluster, Island
from core.protocol import effects as e
from core.protocol import messages as m
from tests.core import structs
from tests.core.build import chain, hop, moe
from tests.laws import examples

CLUSTER = Cluster(
    (
        Island(name="i", hosts=2, devices_per_host=2, memory=200),
        Island(name="j", hosts=2, devices_per_host=2, memory=200),
    )
)
CLIENTS = (100, 101)
PROGRAMS = (chain(2, 2), chain(1, 4), hop(2), moe(2, 4), chain(2, 2, donate=True))


class Rig:
    """A controller, and hosts and clients that mostly behave."""

    def __init__(self, incarnation: int) -> None:
        self.controller = Controller(CLUSTER, config=Config(window=2, fanout=2), incarnation=incarnation)
        self.now = 0
        self.incarnations = dict.fromkeys(range(CLUSTER.hosts), 0)
        self.used = dict.fromkeys(CLIENTS, 0)
        for host in range(CLUSTER.hosts):
            self.join(host)
        for peer in CLIENTS:  # some runs are under way before any peer lies
            for kind in (0, 0, 1, 0, 3):
                self.call(peer, kind, self.used[peer] + 1)

    def tell(self, event: e.Event, passed: int = 1000) -> None:
        """Give the controller an event, and all that drivers and honest hosts answer at once."""
        self.now += passed
        waiting = [event]
        while waiting:
            for effect in self.controller.handle(waiting.pop(0), self.now):
                if isinstance(effect, e.FormWorld):
                    waiting.append(e.WorldUp(effect.island, effect.epoch))
                elif isinstance(effect, e.Send):
                    assert wire.decode(wire.encode(effect.message)) == effect.message  # it can be encoded
                    waiting += self.answers(effect)

    def answers(self, send: e.Send) -> list[e.Event]:
        said, peer = send.message, send.peers[0]
        if isinstance(said, m.Seat):
            return [e.MessageReceived(peer, m.Seated(said.host, said.epoch, said.tree, said.last))]
        if not isinstance(said, m.Ordered):
            return []
        steps = [step for step in said.steps if isinstance(step, m.CompileStep)]
        return [
            e.MessageReceived(root, m.Reports(said.island, said.epoch, said.tree,
                                   (m.Compiled(step.plan, code, self.below(root)),)))
            for root in send.peers for step in steps for code in step.codes
        ]  # fmt: skip

    def below(self, host: int) -> spans.Spans:
        island = self.controller.state.island_of_host(host)
        return island.stream.shape.spans_below.get(host, spans.EMPTY)

    def came(self, peer: int, message: msgspec.Struct) -> None:
        self.tell(e.MessageReceived(peer, message))

    # --- what honest peers do -----------------------------------------------------------------------------------

    def join(self, host: int) -> None:
        self.incarnations[host] += 1
        self.came(host, m.Join(host, self.incarnations[host]))

    def call(self, peer: int, kind: int, number: int) -> None:
        self.used[peer] += 1
        name = self.used[peer]
        session = self.controller.state.by_peer.get(peer)
        if session is None:
            self.came(peer, m.Open(f"client {peer}"))
            for index, program in enumerate(PROGRAMS):
                self.came(peer, m.Register(index, program))
            return
        names = list(session.names)
        program = PROGRAMS[number % len(PROGRAMS)]
        args = tuple(bytes(value.nbytes) for value in program.args)
        some = names[number % len(names)] if names else 0
        calls: list[m.Call] = [
            m.Submit(name, number % len(PROGRAMS), args, (name,)),
            m.Submit(name, number % len(PROGRAMS), args, (name,), "sequential"),
            m.Submit(name, number % len(PROGRAMS), (some,) * len(args) if names else args, (name,)),
            m.Put(name, Value((40 + number % 200,), "uint8"), SliceSpec("p", 2)),
            m.Put(name, Value((8,), "uint8"), SliceSpec("x", 4, exclusive=True)),
            m.Get(name, some),
            m.Release((some,)),
            m.Cancel(session.last_run),
            m.ReleaseSlice("p"),
        ]
        self.came(peer, calls[kind % len(calls)])

    def done(self, number: int, blame: m.Blame | None) -> None:
        flights = list(self.controller.state.in_flight.values())
        if not flights:
            return
        flight = flights[number % len(flights)]
        for host in spans.items(flight.left):
            root = next((r for r in self.roots(flight.island) if spans.contains(self.below(r), host)), None)
            if root is not None:
                self.report(root, m.Done(flight.seq, spans.one(host), blame))

    def roots(self, island: int) -> tuple[int, ...]:
        return self.controller.state.islands[island].stream.shape.roots

    def report(self, root: int, *reports: m.Report) -> None:
        island = self.controller.state.island_of_host(root)
        self.came(root, m.Reports(island.island.index, island.epoch, island.tree_number, reports))

    def later(self) -> None:
        at = self.controller.next_wakeup()
        if at is not None:
            self.now = max(self.now, at)
            self.tell(e.Wakeup())

    # --- what no peer should say --------------------------------------------------------------------------------

    def lie(self, host: int, report: m.Report, number: int, mine: bool) -> None:
        """A report with a valid address, about something that exists, and otherwise nonsense."""
        fields: dict[str, Any] = {}
        flights = list(self.controller.state.in_flight.values())
        for field in ("seq", "transfer"):
            if flights and field in report.__struct_fields__:
                fields[field] = flights[number % len(flights)].seq
        if "hosts" in report.__struct_fields__:
            fields["hosts"] = self.below(host) if mine else spans.EMPTY
        if isinstance(report, m.Compiled) and self.controller.compilation.known():
            fields["plan"] = list(self.controller.compilation.known())[
                number % len(self.controller.compilation.known())
            ]
        for root in self.roots(
            self.controller.state.island_of_host(host).island.index
        ):  # all hosts report the same lie
            if "hosts" in fields:
                fields["hosts"] = self.below(root) if mine else spans.EMPTY
            self.report(root, msgspec.structs.replace(report, **fields))


KINDS = [structs.of(kind) for kind in (m.Done, m.Enqueued, m.PieceCounts, m.Compiled, m.Arrived, m.HostFault, m.Lost)]
NUMBER = st.integers(0, 1000)
PEER = st.integers(0, CLUSTER.hosts) | st.sampled_from(CLIENTS)
HOST = st.integers(0, CLUSTER.hosts - 1)
BLAMES = st.none() | st.sampled_from([m.Blame("user", "it broke"), m.Blame("peer", "another broke")])
CONTROL = m.Open | m.Calls | m.Call | m.Join | m.Seated | m.Leave | m.Reports
STEPS = st.one_of(
    st.tuples(st.just("call"), st.sampled_from(CLIENTS), NUMBER, NUMBER),
    st.tuples(st.just("call"), st.sampled_from(CLIENTS), NUMBER, NUMBER),
    st.tuples(st.just("done"), NUMBER, BLAMES),
    st.tuples(st.just("join"), HOST),
    st.tuples(st.just("later")),
    *(st.tuples(st.just("lie"), HOST, kind, NUMBER, st.booleans()) for kind in KINDS),
    st.tuples(st.just("came"), PEER, structs.of(CONTROL)),
    st.tuples(st.just("came"), PEER, structs.of(wire.Message)),
    st.tuples(st.just("came"), HOST, st.builds(m.Leave, HOST)),
    st.tuples(st.just("tell"), st.builds(e.Disconnected, PEER, st.just("cut"))),
    st.tuples(st.just("tell"), st.builds(e.Malformed, PEER, st.just("nonsense"))),
)


@examples(90, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1), st.lists(STEPS, max_size=30))
def test_nothing_that_a_peer_says_raises_in_the_controller(incarnation: int, steps: list[Any]) -> None:
    rig = Rig(incarnation)
    for name, *about in steps:
        getattr(rig, name)(*about)
    for peer in (*CLIENTS, *range(CLUSTER.hosts + 1)):  # nothing is left of peers that are gone
        rig.tell(e.Disconnected(peer, "all go"))
    rig.tell(e.Disconnected(CLUSTER.hosts, "all go"))
    for _ in range(100):
        rig.later()
    controller = rig.controller
    assert not controller.state.sessions
    assert not controller.state.runs
    assert not controller.state.in_flight
    assert not controller.buffers
    assert all(used == 0 for _, used, committed, _ in controller.ledger.counters())
