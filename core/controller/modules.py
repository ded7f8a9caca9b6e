"""Makes the controller's modules, from the ground up: each is handed those that it calls, and none calls it back.

A module's fields say what it calls (`ControllerModule`); they are found by these names among what was made before it.
What it must tell one that is made after it goes by the turn's agenda (`State`).
"""

from typing import TypeVar

from ..compile import Lowerings
from ..fanout import TreeShape
from ..memory import Buffers, HostBytes, Ledger, Spill
from ..model import Atoms
from ..record import OrderHash, Trace
from ..slices import Resources
from .accounts import Accounts
from .admission import Admission
from .array_copies import ArrayCopies
from .buffer_names import BufferNames
from .buffer_refs import BufferRefs
from .clients import Clients
from .compilation import Compilation
from .completion import Completion
from .dispatch import Dispatch
from .drains import Drains
from .elastic import Elastic
from .failures import Failures
from .gets import Gets
from .in_flight import InFlightTable
from .membership import Membership
from .meters import Meters
from .outbox import TurnOutbox
from .outcomes import Outcomes
from .placements import Placements
from .policy_news import PolicyNews
from .preemption import Preemption
from .puts import Puts
from .recovery import Recovery
from .registrations import Registrations
from .relocation import Relocation
from .results import Results
from .run_waits import RunWaits
from .runs import Runs
from .slice_arrays import SliceArrays
from .slice_calls import SliceCalls
from .stalls import Stalls
from .state import IDS, ControllerModule, State
from .suspensions import Suspensions
from .trace_rows import Tracing
from .view_table import ViewTable
from .views import Views
from .watch import Watchdog

M = TypeVar("M", bound=ControllerModule)


class Modules:
    def __init__(self, state: State, atoms: Atoms, order: OrderHash, trace: Trace | None, shape: TreeShape) -> None:
        self.state, self.atoms, self.order, self.trace, self.shape = state, atoms, order, trace, shape
        # what steps and runs stand on: memory, code, buffers, the line for memory, and how runs end
        self.buffers = Buffers()
        self.ledger = Ledger(atoms, state.device_memory)
        self.resources = Resources(state.cluster)
        kind_of = lambda island: state.cluster.islands[island].kind  # noqa: E731 - of a cluster that may grow
        self.lowerings = Lowerings(first=state.incarnation * IDS, kind_of=kind_of)
        self.watch = Watchdog(state.config.bounds)
        self.outbox = self._make(TurnOutbox)
        self.tracing = None if trace is None else self._make(Tracing)
        memory, disk = (HostBytes(state.hosts_of_devices, each) for each in (state.host_memory, state.host_disk))
        self.spill = Spill(atoms, self.ledger, self.buffers, memory, disk)
        self.names = self._make(BufferNames)
        self.table = ViewTable()
        self.compilation = self._make(Compilation)
        self.waits = self._make(RunWaits)
        self.in_flight = self._make(InFlightTable)
        self.refs = self._make(BufferRefs)
        self.results = self._make(Results)
        self.admission = self._make(Admission)
        self.meters = self._make(Meters)
        self.accounts = self._make(Accounts)
        self.gets = self._make(Gets)
        self.outcomes = self._make(Outcomes)
        # what takes events
        self.views = self._make(Views)
        self.dispatch = self._make(Dispatch)
        self.completion = self._make(Completion)
        self.registrations = self._make(Registrations)
        self.puts = self._make(Puts)
        self.runs = self._make(Runs)
        self.failures = self._make(Failures)
        self.recovery = self._make(Recovery)
        self.membership = self._make(Membership)
        self.copies = self._make(ArrayCopies)
        self.arrays = self._make(SliceArrays)
        self.relocation = self._make(Relocation)
        self.elastic = self._make(Elastic)
        self.placements = self._make(Placements)
        self.preemption = self._make(Preemption)
        self.drains = self._make(Drains)
        self.slice_calls = self._make(SliceCalls)
        self.suspensions = self._make(Suspensions)
        self.clients = self._make(Clients)
        self.stalls = self._make(Stalls)
        self.policy_news = self._make(PolicyNews)

    def _make(self, kind: type[M]) -> M:
        """KeyError if it calls one that stands above it."""
        known = vars(self)
        fields, defaults = kind.__struct_fields__, kind.__struct_defaults__
        return kind(**{name: known[name.lstrip("_")] for name in fields[: len(fields) - len(defaults)]})
