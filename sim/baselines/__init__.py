"""Other systems, as small SimPy models on the same hardware: what Seaway is compared with in the micro-benchmarks.

    outcome = run("jax", load("A"), Work(kernel, "opbyop"), profile("paper"))
    outcome.per_second

`jax`: multi-controller, each host dispatches by itself. `tf1`: a single controller with central barriers. `ray`: a
driver that calls actors, results through host memory. Devices, links and networks are those of `sim.hardware`; a
collective costs the same whoever dispatches it. Their host costs stand in `sim/data/systems`, each with its source.
"""

from .work import MODES, SYSTEMS, Mode, Outcome, Work, fused, run

__all__ = ["MODES", "SYSTEMS", "Mode", "Outcome", "Work", "fused", "run"]
