"""Plans and their code: what is lowered to which plan, which hosts know it, and which computations are compiled where.

Gangs enter an order only when every host of theirs has reported that their code is ready. If a host could not do its
part, through no fault of the code, it is asked again when the code is needed next. Hosts are told a plan once an
epoch; a new epoch makes all compiled code void. One client's long compilation delays nobody else, because nothing else
waits here.

In: a plan that a run needs (`ask`), reports of hosts (`reported`), hosts that are gone. Out: `CompileStep` to hosts,
and in `State.plan_ready` the plans whose code is ready, or never will be.
Neighbours: `runs` asks and waits; `dispatch` asks again in a new epoch; `membership` begins epochs.
The functions that matter: `rows_of`, `tell`, `ask`, `reported`, `answered`.
"""

from ..compile import Lowerings, cut
from ..model import Atoms, Gang, Plan, Spans, spans
from ..protocol import MOST_ABOUT, Blame, Compiled, CompileStep, ForgetStep
from .outbox import TurnOutbox
from .plan_rows import PlanRows
from .records import RunRecord
from .state import ControllerModule, State

NOWHERE: dict[int, int] = {}
PASSING = "code"  # the blame of a host that could not get or compile code, and may be able to later


class Compilation(ControllerModule):
    _state: State
    _atoms: Atoms
    _lowerings: Lowerings
    _outbox: TurnOutbox
    _rows: dict[int, PlanRows] = {}  # by plan
    stale: dict[int, None] = {}  # plans for a device map, or a program, that has gone
    _waiting: dict[int, dict[int, Spans]] = {}  # plan -> code -> hosts that have not answered
    _asked: dict[int, dict[int, int]] = {}  # plan -> island -> epoch in which it was asked
    _blames: dict[int, Blame] = {}  # plan -> why it cannot be compiled
    _abouts: dict[int, bytes] = {}  # plan -> what a host said about the code of node 0

    # --- plans ---------------------------------------------------------------------------------------------------

    def rows_of(self, plan: Plan) -> PlanRows:
        rows = self._rows.get(plan.id)
        if rows is None:
            rows = self._rows[plan.id] = PlanRows(plan, self._atoms, self._state.hosts_of)
        return rows

    def known(self) -> dict[int, PlanRows]:
        """The plans that are in use."""
        return self._rows

    def tell(self, rows: PlanRows, island: int) -> None:
        """Hosts are told a plan once an epoch, before anything that names it."""
        epoch = self._state.islands[island].epoch
        if rows.sent.get(island) != epoch:
            rows.sent[island] = epoch
            part = rows.parts.get(island)
            if part is None:
                part = rows.parts[island] = cut(rows.plan, island)
            self._outbox.plan(island, part, rows.island_hosts[island])

    def announce(self, run: RunRecord) -> None:
        """Tell each island of the run that has not been told, before anything that names it."""
        for island in list(run.untold):
            self.announce_on(run, island)

    def announce_on(self, run: RunRecord, island: int) -> None:
        """Tell hosts of a run with its first step, not when it is admitted: it may wait long, and a message for
        each run would go to every root of the tree, and hold up what hosts have to say."""
        hosts = run.untold.pop(island, None)
        if hosts is not None:
            rows = run.rows
            if rows.sent.get(island) != self._state.islands[island].epoch:
                self.tell(rows, island)
            self._outbox.run(island, run.header, hosts)

    def forget_stale(self) -> None:
        """Forget plans whose device map or program has gone, when no run of theirs is left."""
        self.stale.update(dict.fromkeys(self._lowerings.forgotten()))
        for plan in [p for p in self.stale if p not in self._rows or not self._rows[p].users]:
            del self.stale[plan]
            for table in (self._waiting, self._asked, self._blames, self._abouts):
                table.pop(plan, None)
            rows = self._rows.pop(plan, None)
            for island, hosts in rows.island_hosts.items() if rows else ():
                self._outbox.step(island, ForgetStep((), (plan,)), hosts)

    # --- code ----------------------------------------------------------------------------------------------------

    def ask(self, rows: PlanRows) -> bool:
        """Have its code compiled wherever it is not, in this epoch. True: it is ready everywhere."""
        if rows.ready_at == self._state.epochs:
            return True
        formed = True
        for number in rows.island_hosts:
            island = self._state.islands[number]
            if island.formed != island.epoch:
                formed = False  # asked once the epoch has formed
                continue
            self.tell(rows, number)
            self._request(rows, number, island.epoch)
        return formed and self._is_compiled(rows)

    def _is_compiled(self, rows: PlanRows) -> bool:
        """All islands of the plan stand."""
        plan, islands = rows.plan.id, self._state.islands
        asked = self._asked.get(plan, NOWHERE)
        ready = not self._waiting.get(plan)
        if ready and plan not in self._blames:
            if all(asked.get(island) == islands[island].epoch for island in rows.island_hosts):
                rows.ready_at = self._state.epochs
        return ready

    def _request(self, rows: PlanRows, island: int, epoch: int) -> None:
        """Ask the plan's hosts on this island to compile; once an epoch."""
        plan = rows.plan.id
        asked = self._asked.setdefault(plan, {})
        if asked.get(island) == epoch:
            return
        asked[island] = epoch
        wanted = _codes_on(rows, island)
        if wanted:
            waiting = self._waiting.setdefault(plan, {})
            for code, hosts in wanted.items():
                waiting[code] = spans.union(waiting.get(code, spans.EMPTY), hosts)
            step = CompileStep(plan, tuple(wanted), tuple(wanted.values()))
            self._outbox.step(island, step, spans.union(*wanted.values()))

    def reported(self, report: Compiled) -> None:
        waiting = self._waiting.get(report.plan, {})
        left = waiting.get(report.code)
        if left is None:
            return
        if report.about and len(report.about) <= MOST_ABOUT:  # a host's own machine says no more
            self._abouts[report.plan] = report.about
        if report.blame is not None:
            self._blames.setdefault(report.plan, report.blame)
            self._rows[report.plan].ready_at = -1
        left = spans.minus(left, report.hosts)
        if left:
            waiting[report.code] = left
        else:
            del waiting[report.code]
        if report.blame is not None or not waiting:
            self._state.plan_ready.append(report.plan)

    def answered(self, plan: int) -> None:
        """Who waited for this plan's code has heard. A fault that may pass is forgotten when all hosts have answered,
        so that no answer to the old question is taken for one to the next."""
        blame = self._blames.get(plan)
        if blame is not None and blame.code == PASSING and not self._waiting.get(plan):
            del self._blames[plan]
            self._asked.pop(plan, None)

    def hosts_gone(self, gone: Spans) -> None:
        """Nobody waits for the dead: some plans may be ready by this."""
        for plan, waiting in self._waiting.items():
            for code in list(waiting):
                left = spans.minus(waiting[code], gone)
                if left:
                    waiting[code] = left
                else:
                    del waiting[code]
                    if not waiting:
                        self._state.plan_ready.append(plan)

    # --- to look at ----------------------------------------------------------------------------------------------

    def blame(self, plan: int) -> Blame | None:
        return self._blames.get(plan)

    def about(self, plan: int) -> bytes:
        """What the host with the first device of node 0 said about that node's code; see `CodeReady`."""
        return self._abouts.get(plan, b"")

    def missing(self, plan: int) -> Spans:
        """Hosts that have not reported: what a stalled compilation is blamed on."""
        return spans.union(*self._waiting.get(plan, {}).values())

    def lacking(self, plan: int) -> dict[int, Spans]:
        """Code -> hosts that have not reported that it is compiled."""
        return self._waiting.get(plan, {})


def _codes_on(rows: PlanRows, island: int) -> dict[int, Spans]:
    """The computations that run on this island, with their hosts."""
    wanted: dict[int, Spans] = {}
    for index, step in enumerate(rows.plan.steps):
        if isinstance(step, Gang) and step.place.island == island:
            known = wanted.get(step.computation, spans.EMPTY)
            hosts = rows.hosts[index]
            wanted[step.computation] = hosts if hosts == known else spans.union(known, hosts)
    return wanted
