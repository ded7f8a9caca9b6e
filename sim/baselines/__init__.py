"""Other systems, as small SimPy models on the same hardware, with which the micro-benchmarks compare Seaway.

    outcome = run("jax", load("A"), Work(kernel, "opbyop"), profile("paper"))
    outcome.per_second

`jax`: multi-controller, each host dispatches by itself. `tf1`: a single controller with central barriers. `ray`: a
driver that calls actors and gets results through host memory. Devices, links and networks are those of
`sim.hardware`; a collective costs the same in every system. The host costs of each system are in `sim/data/systems`,
with their sources.
"""

from .baseline_work import MODES, BaselineWork, Mode, Outcome, fused
from .systems import SYSTEMS, run
