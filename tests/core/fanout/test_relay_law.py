"""Relays with an island's stream and trees: each order is carried out once, each end reported once, and the log is
trimmed."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from core.fanout.relay import Relay
from core.fanout.stream import Stream
from core.fanout.tree import tree
from core.model import spans
from core.model.spans import Spans
from core.protocol.effects import Command, LogLine, Send
from core.protocol.messages import Done, GangStep, Heartbeat, Ordered, Report, Reports, Seat, Seated
from tests.laws import examples

Message = Ordered | Reports | Seat | Seated


class Island:
    """The controller's stream, relays with scripted executors, and FIFO pipes between them."""

    def __init__(self, hosts: int) -> None:
        self.stream = Stream(0)
        self.relays = {host: Relay(host, period=1_000, patience=50) for host in range(hosts)}
        self.pipes: dict[tuple[int, int], deque[Message]] = {}
        self.owes: dict[int, list[int]] = {host: [] for host in range(hosts)}  # seqs enqueued and not finished
        self.did: dict[int, list[int]] = {host: [] for host in range(hosts)}
        self.meant: dict[int, list[int]] = {host: [] for host in range(hosts)}
        self.heard: list[Report] = []
        self.messages_up = 0
        self.gangs = 0
        self.trees = 0

    def write(self, sender: int, receiver: int, message: Message) -> None:
        self.pipes.setdefault((sender, receiver), deque()).append(message)

    def obey(self, host: int, effects: list[Command]) -> None:
        for effect in effects:
            match effect:
                case Send(peers=peers, message=message):
                    assert isinstance(message, Ordered | Reports)
                    for peer in peers:
                        self.write(host, peer, message)
                case _:
                    assert isinstance(effect, LogLine), effect

    def order(self, sender: int, host: int, message: Ordered) -> None:
        out: list[Command] = []
        if self.relays[host].ordered(sender, message, out):
            seqs = [step.seq for step in message.steps if isinstance(step, GangStep)
                    if spans.contains(step.hosts, host)]  # fmt: skip
            self.owes[host] += seqs
        self.obey(host, out)

    def flush(self, host: int) -> None:
        out: list[Command] = []
        self.relays[host].flush(out)
        self.obey(host, out)

    def gang(self, hosts: Spans) -> None:
        self.gangs += 1
        for host in spans.items(hosts):
            self.meant[host].append(self.gangs)
        message = self.stream.append((), (), (GangStep(self.gangs, run=1, step=0, hosts=hosts),), hosts, 0)
        for root in self.stream.targets(hosts):
            self.write(-1, root, message)

    def plant(self, fanout: int) -> None:
        self.trees += 1
        self.stream.refence(1, self.trees, tree(spans.of(self.relays), fanout))
        for host in self.relays:
            self.write(-1, host, self.stream.seat(host))

    def finish(self, at: int) -> None:
        """Let one host finish its next gang."""
        busy = [host for host, seqs in self.owes.items() if seqs]
        if busy:
            host = busy[at % len(busy)]
            seq = self.owes[host].pop(0)
            self.did[host].append(seq)
            self.relays[host].report(Done(seq, spans.one(host)), 0)
            self.flush(host)

    def step(self, at: int) -> bool:
        full = [pair for pair, pipe in self.pipes.items() if pipe]
        if not full:
            return False
        sender, host = full[at % len(full)]
        message = self.pipes[sender, host].popleft()
        if host < 0:
            self.controller_hears(message)
        elif isinstance(message, Seat):
            self.seat(host, message)
        elif isinstance(message, Ordered):
            self.order(sender, host, message)
        elif isinstance(message, Reports):
            out: list[Command] = []
            self.relays[host].reports(sender, message, 0, out)
            self.obey(host, out)
            self.flush(host)
        return True

    def seat(self, host: int, seat: Seat) -> None:
        """Take a seat. Repeat the reports that are not settled, as an executor does."""
        node = self.relays[host]
        out: list[Command] = []
        node.seated(seat, 0, out)
        self.obey(host, out)
        self.write(host, -1, Seated(host, seat.epoch, seat.tree, node.inlet.seen))
        for seq in self.did[host]:
            node.report(Done(seq, spans.one(host)), 0)
        self.flush(host)

    def controller_hears(self, message: Message) -> None:
        if isinstance(message, Seated):
            if message.tree == self.stream.tree:
                for again in self.stream.rejoin(message.host, message.last):
                    for root in self.stream.targets(again.hosts):
                        self.write(-1, root, again)
        elif isinstance(message, Reports) and message.tree == self.stream.tree:
            self.messages_up += 1
            for report in message.reports:
                if isinstance(report, Heartbeat):
                    self.stream.seen(report.hosts, report.number)
                else:
                    self.heard.append(report)

    def beat(self, host: int) -> None:
        node = self.relays[host]
        if node.inlet.seat is not None:
            node.wakeup(node.next_wakeup() or 0)
            self.flush(host)

    def run(self) -> None:
        while self.step(0):
            pass


def members(hosts: int) -> st.SearchStrategy[Spans]:
    return st.sets(st.integers(0, hosts - 1), min_size=1).map(spans.of)


@examples(40)
@given(st.integers(1, 14), st.integers(1, 5), st.data())
def test_all_hosts_are_reported_once_and_in_one_message_for_each_root(
    hosts: int, fanout: int, data: st.DataObject
) -> None:
    island = Island(hosts)
    island.plant(fanout)
    island.run()
    for part in data.draw(st.lists(members(hosts), min_size=1, max_size=4)):
        island.heard, island.messages_up = [], 0
        island.gang(part)
        for at in data.draw(st.lists(st.integers(0, 40), max_size=60)):
            island.step(at) if at % 2 else island.finish(at)
        while island.step(0) or any(island.owes.values()):
            island.finish(0)
        told = [report.hosts for report in island.heard if isinstance(report, Done)]
        assert sum(map(spans.count, told)) == spans.count(part)
        assert spans.union(*told) == part
        assert island.messages_up == len(told) == len(island.stream.targets(part))


@examples(40)
@given(st.integers(1, 9), st.data())
def test_in_all_trees_each_order_is_done_once_each_end_is_reported_and_the_log_empties(
    hosts: int, data: st.DataObject
) -> None:
    island = Island(hosts)
    island.plant(2)
    for _ in range(data.draw(st.integers(1, 70))):
        what = data.draw(st.sampled_from(("gang", "gang", "step", "step", "step", "step", "finish", "beat", "plant")))
        at = data.draw(st.integers(0, 20))
        if what == "gang":
            island.gang(data.draw(members(hosts)))
        elif what == "plant":
            island.plant(at % 4 + 1)
        elif what == "beat":
            for host in reversed(range(hosts)):
                island.beat(host)
        elif what == "finish":
            island.finish(at)
        else:
            island.step(at)
    while island.step(0) or any(island.owes.values()):
        island.finish(0)
    assert island.did == island.meant
    for seq in range(1, island.gangs + 1):
        told = [report.hosts for report in island.heard if isinstance(report, Done) and report.seq == seq]
        assert spans.union(*told) == spans.of(host for host in island.meant if seq in island.meant[host])
    for _ in range(max(map(island.stream.shape.depth, range(hosts))) + 1):
        for host in range(hosts):
            island.beat(host)
        island.run()
    assert island.stream.backlog == 0
