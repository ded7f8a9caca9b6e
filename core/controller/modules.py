"""Makes the controller's modules, from the ground up: each is handed those that it calls, and none calls it back.

What a module must tell one that is made after it goes by the turn's agenda (`State`).
"""

from __future__ import annotations

from ..compile import Lowerings
from ..fanout import TreeShape
from ..memory import Buffers, HostMemory, Ledger, Spill
from ..model import Atoms
from ..record import OrderHash, Trace
from ..slices import Resources
from .admission import Admission
from .buffer_names import BufferNames
from .buffer_refs import BufferRefs
from .clients import Clients
from .compilation import Compilation
from .completion import Completion
from .dispatch import Dispatch
from .failures import Failures
from .gets import Gets
from .in_flight import InFlightTable
from .membership import Membership
from .outbox import TurnOutbox
from .outcomes import Outcomes
from .policy_news import PolicyNews
from .puts import Puts
from .recovery import Recovery
from .registrations import Registrations
from .results import Results
from .run_waits import RunWaits
from .runs import Runs
from .stalls import Stalls
from .state import IDS, State
from .trace_rows import Tracing
from .view_table import ViewTable
from .views import Views
from .watch import Watchdog


class Ground:
    """What steps and runs stand on: memory, code, buffers, the line for memory, and how runs end."""

    def __init__(self, state: State, atoms: Atoms, trace: Trace | None) -> None:
        self.buffers = buffers = Buffers()
        self.ledger = ledger = Ledger(atoms, state.device_memory)
        self.resources = Resources(state.cluster)
        self.lowerings = lowerings = Lowerings(first=state.incarnation * IDS)
        self.watch = watch = Watchdog(state.config.bounds)
        self.outbox = outbox = TurnOutbox(state)
        tracing = None if trace is None else Tracing(state, trace, atoms=atoms, ledger=ledger)
        self.tracing = tracing
        memory = HostMemory(state.hosts_of_devices, state.host_memory)
        self.spill = spill = Spill(atoms, ledger, buffers, memory)
        self.names = names = BufferNames(buffers)
        self.table = table = ViewTable()
        self.compilation = compilation = Compilation(state, atoms=atoms, lowerings=lowerings, outbox=outbox)
        self.waits = waits = RunWaits(state, compilation=compilation, outbox=outbox, watch=watch)
        self.in_flight = in_flight = InFlightTable(state, outbox=outbox, watch=watch)
        self.refs = refs = BufferRefs(
            state, buffers=buffers, ledger=ledger, names=names, outbox=outbox, spill=spill, views=table
        )
        self.results = results = Results(
            state, buffers=buffers, ledger=ledger, names=names, refs=refs, views=table
        )
        self.admission = admission = Admission(
            state, atoms=atoms, buffers=buffers, in_flight=in_flight, ledger=ledger, outbox=outbox, refs=refs,
            spill=spill, tracing=tracing, waits=waits, watch=watch,
        )  # fmt: skip
        self.gets = gets = Gets(
            state, admission=admission, buffers=buffers, in_flight=in_flight, names=names, outbox=outbox, refs=refs,
            tracing=tracing,
        )  # fmt: skip
        self.outcomes = Outcomes(
            state, admission=admission, buffers=buffers, compilation=compilation, gets=gets, ledger=ledger,
            outbox=outbox, refs=refs, results=results, tracing=tracing, views=table, waits=waits,
        )  # fmt: skip


class Modules:
    """What takes events."""

    def __init__(
        self, state: State, atoms: Atoms, order: OrderHash, trace: Trace | None, shape: TreeShape
    ) -> None:
        self.ground = ground = Ground(state, atoms, trace)
        buffers, ledger, spill, names = ground.buffers, ground.ledger, ground.spill, ground.names
        outbox, refs, resources = ground.outbox, ground.refs, ground.resources
        compilation, lowerings = ground.compilation, ground.lowerings
        waits, watch, tracing, in_flight = ground.waits, ground.watch, ground.tracing, ground.in_flight
        results, admission, gets, outcomes = ground.results, ground.admission, ground.gets, ground.outcomes
        self.views = views = Views(
            state, admission=admission, atoms=atoms, buffers=buffers, names=names, outbox=outbox, outcomes=outcomes,
            refs=refs, resources=resources, table=ground.table,
        )  # fmt: skip
        self.dispatch = dispatch = Dispatch(
            state, buffers=buffers, compilation=compilation, in_flight=in_flight, ledger=ledger, order=order,
            outbox=outbox, outcomes=outcomes, refs=refs, results=results, tracing=tracing, views=views, waits=waits,
        )  # fmt: skip
        self.completion = completion = Completion(
            state, admission=admission, dispatch=dispatch, gets=gets, in_flight=in_flight, ledger=ledger,
            outbox=outbox, outcomes=outcomes, refs=refs, results=results, tracing=tracing, views=views,
        )  # fmt: skip
        registrations = Registrations(
            state, compilation=compilation, lowerings=lowerings, outbox=outbox, resources=resources, waits=waits,
            watch=watch,
        )  # fmt: skip
        puts = Puts(
            state, admission=admission, atoms=atoms, buffers=buffers, in_flight=in_flight, ledger=ledger,
            outbox=outbox, outcomes=outcomes, refs=refs, resources=resources, tracing=tracing, views=views, watch=watch,
        )  # fmt: skip
        self.runs = runs = Runs(
            state, admission=admission, buffers=buffers, compilation=compilation, lowerings=lowerings, names=names,
            outcomes=outcomes, puts=puts, refs=refs, registrations=registrations, resources=resources,
            results=results, tracing=tracing, views=views, waits=waits, watch=watch,
        )  # fmt: skip
        self.failures = failures = Failures(
            state, compilation=compilation, completion=completion, dispatch=dispatch, in_flight=in_flight,
            lowerings=lowerings, outbox=outbox, outcomes=outcomes, refs=refs, registrations=registrations,
            resources=resources, runs=runs, watch=watch,
        )  # fmt: skip
        self.recovery = recovery = Recovery(
            state, atoms=atoms, buffers=buffers, ledger=ledger, outbox=outbox, refs=refs, spill=spill, watch=watch
        )  # fmt: skip
        self.membership = Membership(
            state, failures=failures, in_flight=in_flight, outbox=outbox, recovery=recovery, resources=resources,
            shape=shape, watch=watch,
        )  # fmt: skip
        self.clients = Clients(
            state, buffers=buffers, gets=gets, lowerings=lowerings, names=names, outbox=outbox, outcomes=outcomes,
            puts=puts, recovery=recovery, refs=refs, registrations=registrations, resources=resources, runs=runs,
            tracing=tracing, views=views,
        )  # fmt: skip
        self.stalls = Stalls(
            state, admission=admission, compilation=compilation, in_flight=in_flight, registrations=registrations,
            waits=waits,
        )  # fmt: skip
        self.policy_news = PolicyNews(state, outbox=outbox, tracing=tracing, watch=watch)
