"""The errors that Seaway raises. Each names what was asked, and what to do instead.

`SeawayError` is the base of all. Where a Python exception says the same thing, it is a base too: `NoContents` is a
ValueError. An argument of a wrong type or value raises TypeError or ValueError, as everywhere in Python.

    >>> step = sw.synthetic("step", devices=64, duration="1ms")
    >>> with sw.simulate("B", hosts=2):
    ...     try:
    ...         step(np.float32(0)).block_until_ready()
    ...     except sw.errors.RunError as error:
    ...         print(error.code)
    refused
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from core.model import Impossible, ProgramError, SeawayError
from core.protocol import Blame

__all__ = [
    "Cancelled", "CostError", "Impossible", "NoCompiler", "NoContents", "NoSession", "NotATrace", "NotNow", "NotReady",
    "ProgramError", "RunError", "SeawayError", "SessionClosed", "Stalled", "TooBig", "TracedValueError", "Unreachable",
    "WrongPolicy",
]  # fmt: skip


class NoSession(SeawayError, RuntimeError):
    """A call that needs devices was made where no session is open."""

    def __init__(self, what: str, unopened: Sequence[str] = ()) -> None:
        forgotten = (
            f" (There is {unopened[0]}, which was made and not entered: `with s:`, or `s.open()`.)" if unopened else ""
        )
        super().__init__(
            f"{what} was called outside any session, so there are no devices to run it on.{forgotten} Open one around "
            f"it: `with sw.local(hosts=2) as s:` for devices of this machine, `with sw.connect('grpc://head:29000') as "
            f"s:` for those of a cluster, `with sw.simulate('A') as s:` for 2048 simulated TPUs. (Slices, jit "
            f"and @sw.program are declarations and need none.)"
        )


class SessionClosed(SeawayError, RuntimeError):
    """The session is over: what is asked of it now cannot be answered."""


class Stalled(SeawayError, RuntimeError):
    """What is waited for cannot come any more."""


class NotNow(SeawayError, RuntimeError):
    """Right in itself, but not here: inside a traced program, for another client's array, after a donation."""


class TracedValueError(SeawayError, TypeError):
    """Python asked for the contents of a value that stands for all contents, while a program is traced."""

    def __init__(self, what: str, program: str, does: str) -> None:
        super().__init__(
            f"{does} needs the contents of {what}, and while @sw.program {program!r} is traced there are none: "
            f"the trace must hold whatever they will be. Choose one: (1) decide inside a computation, with "
            f"jax.lax.cond or jnp.where under sw.jit; (2) return the value, read it (np.asarray, float) between "
            f"two programs, and branch in Python there; (3) if only a size depends on contents, "
            f"sw.jit(..., irregular=True, max_shape=...); (4) if contents say where rows go, sw.route(x, dest)."
        )


class NoContents(SeawayError, ValueError):
    """Contents were asked of a simulated array, and this simulation has none."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(
            f"{what} has no contents: the simulator models time, not numbers. Choose one: "
            f"sw.simulate(values='compute') computes them on this machine's CPU; "
            f"sw.simulate(values={{'name': stand_in}}) makes them up, by the name of a program or computation; "
            f"or read only what is modelled: .shape, .dtype, .sharding, and when it is ready (repr).{hint}"
        )


class TimedContents(NoContents):
    """Contents were asked of an array on `timed` devices, which have none."""

    def __init__(self, what: str) -> None:
        SeawayError.__init__(
            self,
            f"{what} has no contents: `timed` devices only take the time they are told, and compute nothing. Choose "
            f"one: platform='cpu' has devices that compute, on any machine; sw.simulate(values='compute') models the "
            f"time and computes on this machine; or read only when it is ready (block_until_ready)",
        )


class RunError(SeawayError, RuntimeError):
    """A run failed; arises where its results are waited for. `blame` has the parts."""

    def __init__(self, blame: Blame) -> None:
        super().__init__(str(blame))
        self.blame = blame

    @property
    def code(self) -> str:
        """ "user", "refused", "no-memory", "host-lost", "cancelled", ..."""
        return self.blame.code

    def __reduce__(self) -> tuple[type, tuple[Blame]]:
        return type(self), (self.blame,)


class Cancelled(RunError):
    """The run was cancelled by its client."""


class Unreachable(SeawayError, ConnectionError):
    """No controller answers at the address, or it is gone and has not come back."""


class NotReady(SeawayError, TimeoutError):
    """A cluster was not complete in time."""


class CostError(SeawayError):
    """The cost of a computation cannot be found this way. The text says why, and what would help."""


class NoCompiler(CostError):
    """The TPU compiler is not installed here."""


class TooBig(CostError):
    """The computation does not fit into a device's memory."""


class NotATrace(SeawayError, ValueError):
    """The folder has no saved trace that this version can read."""


class WrongPolicy(SeawayError, AssertionError):
    """`sw.policies.check` found something that the policy does wrong. The text shows the smallest case of it."""


def run_error(blame: Blame) -> RunError:
    return (Cancelled if blame.code == "cancelled" else RunError)(blame)


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'stride'?)`, or nothing."""
    close = get_close_matches(word, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
