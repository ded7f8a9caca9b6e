"""Arrays as futures: shape, type and place are known at once, contents when the computation that makes them has run.

A user holds an `Array`; when its last reference goes, its buffer is released. What the client knows of it is in the
`ArrayGroup` of the call that makes it. A call may make a thousand arrays, so an `Array` is no more than a place in its
group, and what waits for many of them asks their groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import numpy as np
from msgspec.structs import replace

from core.model import Sharding
from core.protocol import Blame

from ..errors import NotNow, run_error
from ..graph import in_trace
from ..specs import Aval, Operand, Slice, trees
from ..wording import duration
from .array_groups import ArrayGroup, ClientBuffer

if TYPE_CHECKING:
    from .caller import Caller


class Run(msgspec.Struct, eq=False):
    """One execution of a program. `array.run` is the run that makes an array.

    number, program   which run of this client it is, and the name of its program
    done, ended_at    whether it has ended, and when, in nanoseconds of the session's clock (-1: not yet)
    due_at, late      its deadline on that clock (0: none), and whether it has missed it
    tries, blame      how often it was submitted again, and why it failed (None: it has not)
    steps             once it has ended: how many steps its computations have done; one that is no `sw.synthetic(...,
                      steps=...)` has one step

        >>> step = sw.synthetic("step", devices=4, duration="1ms")
        >>> with sw.simulate("B", hosts=2):
        ...     run = step(np.float32(0)).run
        ...     print(run.program, run.done, run.wait().done)
        step False True
    """

    _caller: Caller
    number: int
    program: str
    due_at: int = 0
    ended_at: int = -1
    tries: int = 0
    blame: Blame | None = None
    _steps: int = 0
    _looked_at: bool = False  # somebody has been told of its failure
    _must_be_seen: bool = False  # its failure is raised even if nobody waits for it
    _takes: dict[int, str] = {}  # of one that may be submitted again: what its arguments are called

    @property
    def done(self) -> bool:
        return self.ended_at >= 0

    @property
    def late(self) -> bool:
        """Whether it ended after its deadline, or has not ended and the deadline has passed."""
        if not self.due_at:
            return False
        return (self.ended_at if self.done else self._caller.now()) > self.due_at

    def cancel(self) -> None:
        """Ask that it stop. What it has not made by then fails; whoever waits for that gets `Cancelled`."""
        self._looked_at = True
        self._caller.cancel(self)

    def stop(self) -> None:
        """Ask that its computations of several steps end with the step under way, on all their devices. What has not
        begun does no step. It ends well: its results are there, and `steps` says how far it came. Returns at once."""
        self._caller.stop(self)

    @property
    def steps(self) -> int:
        if not self.done:
            raise NotNow(f"{self!r}: how many steps it does is known when it has ended: run.wait().steps")
        return self._steps if self.blame is None else 0

    def wait(self) -> Run:
        """Until it has ended; raises what it failed with."""
        self._caller.wait_run(self)
        if self.blame is not None:
            self._looked_at = True
            raise run_error(self.blame)
        return self

    def _final(self, blame: Blame, lacks: tuple[tuple[int, str], ...]) -> Blame:
        """The blame to show, which names a program: this one, if none is to blame. `lacks` names inputs that were gone,
        so that the run could not be tried again."""
        blame = blame if blame.program else replace(blame, program=self.program)
        if not lacks:
            return blame
        gone = ", ".join(f"{self._takes.get(name, f'buffer {name}')} is {what}" for name, what in lacks)
        return replace(blame, cause=f"{blame.cause}; it cannot run again, since {gone}")

    def __repr__(self) -> str:
        state = "under way" if not self.done else "ended" if self.blame is None else f"failed: {self.blame}"
        at = f" at {duration(self.ended_at)}" if self.done else ""
        late = f", due at {duration(self.due_at)}: late" if self.late else ""
        return f"<run {self.number} of {self.program!r}, {state}{at}{late}>"


class Array(Operand, msgspec.Struct, eq=False, gc=False):
    """An array on a slice's devices. It is a future: shape and type are known at once, contents when they are computed.

    Waiting, reading and errors are as for a `jax.Array`. Only computations compute with it, except that a single number
    may be used in Python as one.

        >>> double = sw.jit(lambda x: x * 2, devices=2)
        >>> with sw.simulate("B", hosts=2, values="compute"):
        ...     x = double(np.float32([1, 2]))
        ...     print(x.shape, x.dtype, x.is_ready(), np.asarray(x))
        (2,) float32 False [2. 4.]
    """

    # A Struct without `gc` is made and forgotten four times as fast as another object, and cannot be weakly referenced.
    # Nothing that an Array leads to may lead back to it (see `Caller.close`).
    _group: ArrayGroup
    _abstract: Aval
    _name: int
    __hash__ = None  # type: ignore[assignment]  # as JAX's: `==` compares contents

    def __del__(self) -> None:
        self._group.dropped(self._name)

    @property
    def _buffer(self) -> ClientBuffer:
        group = self._group
        return group.own.get(self._name) or group.buffer(self._name)

    @property
    def _outcome(self) -> ArrayGroup | ClientBuffer:
        return self._group.outcome(self._name)

    @property
    def _label(self) -> str:
        return self._group.about(self._name).label

    @property
    def slice(self) -> Slice:
        return self._group.about(self._name).slice

    @property
    def _split(self) -> Sharding:
        return self._group.about(self._name).sharding

    @property
    def run(self) -> Run | Any:  # for a type checker that need not be told each time that it was not put
        """The run that makes this array, as in `array.run.cancel()`. None for an array that was put."""
        return self._group.run

    # --- waiting ------------------------------------------------------------------------------------------

    def is_ready(self) -> bool:
        if not self._outcome.known:
            self._group.caller.poll()
        return self._outcome.known

    def block_until_ready(self) -> Array:
        group = self._group
        if group.gone:
            self._check_usable("wait for")
        group.caller.wait_ready([group], [self])
        if group.own or group.blame is not None:
            group.outcome(self._name).fail()
        return self

    @property
    def ready_at(self) -> int:
        """When it became ready, in nanoseconds of the session's clock. Waits until it is."""
        self.block_until_ready()
        return self._outcome.ready_at

    # --- giving up ----------------------------------------------------------------------------------------

    def delete(self) -> None:
        """Give its memory back now."""
        if not self.is_deleted():
            self._group.give_up(self._name, 1, "was deleted")
            self._group.caller.given_up.append(self._name)

    def is_deleted(self) -> bool:
        return bool(self._group.gone) and bool(self._group.why_gone(self._name))

    def _check_usable(self, what: str) -> None:
        if self.is_deleted():
            gone = self._group.why_gone(self._name)
            raise NotNow(f"cannot {what} {self._abstract!r}, {self._label}: it {gone}")

    # --- contents -----------------------------------------------------------------------------------------

    def _needs(self, does: str) -> np.ndarray[Any, Any]:
        buffer = self._buffer
        if buffer.host is None:
            if self._group.gone:
                self._check_usable("read")
            buffer.caller.fetch([buffer])
        return buffer.host  # type: ignore[no-any-return]

    def _number(self, does: str) -> Any:
        if self.size != 1:
            raise TypeError(f"{does}: only an array of one element is a number, and this is {self._abstract!r}")
        return self._needs(does).reshape(())[()]

    def _operate(self, symbol: str, other: Any, turned: bool) -> Any:
        if self.size != 1:
            raise TypeError(
                f"`{symbol}` on {self._abstract!r}, which lies on {self.slice!r}: compute there, with "
                f"sw.jit(lambda x, ...: x {symbol} ..., devices=x.slice), or bring it here, with np.asarray(x)"
            )
        mine = self._number(f"`{symbol}`")
        other = other._number(f"`{symbol}`") if isinstance(other, Array) else other
        return OPERATORS[symbol](other, mine) if turned else OPERATORS[symbol](mine, other)

    def _computes(self, function: str) -> NoReturn:
        raise NotNow(  # JAX would take a TypeError for its own, and say less
            f"{function} on {self._abstract!r}, which lies on {self.slice!r}: JAX computes with "
            f"arrays of this process. Compute there: wrap the function in sw.jit(..., devices=x.slice); move it with "
            f"sw.put; or bring it here with np.asarray(x)"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        found = self._needs("np.asarray()")
        if dtype is not None and found.dtype != dtype:
            return found.astype(dtype)
        return found.copy() if copy else found

    def __bool__(self) -> bool:
        return bool(self._number("bool()"))

    def __float__(self) -> float:
        return float(self._number("float()"))

    def __int__(self) -> int:
        return int(self._number("int()"))

    def __index__(self) -> int:
        return self._number("index").__index__()  # type: ignore[no-any-return]

    def __complex__(self) -> complex:
        return complex(self._number("complex()"))

    def __eq__(self, other: object) -> Any:
        return NotImplemented if other is None else self._operate("==", other, False)

    def __ne__(self, other: object) -> Any:
        return NotImplemented if other is None else self._operate("!=", other, False)

    def item(self) -> Any:
        return self._number("item()").item()

    def tolist(self) -> Any:
        return self._needs("tolist()").tolist()

    def __iter__(self) -> Iterator[Any]:
        len(self)
        return iter(self._needs("iteration"))

    def __getitem__(self, where: Any) -> Any:
        """Index the contents. All of them are fetched first."""
        return self._needs("indexing")[where]

    def __setitem__(self, where: Any, value: Any) -> None:
        raise TypeError(
            f"{self._abstract!r} is on devices and cannot be changed: make a new array, with "
            f"sw.jit(lambda x: x.at[...].set(...), devices=x.slice)"
        )

    def __format__(self, spec: str) -> str:
        return format(self._number("format()").item(), spec) if spec else str(self)

    def __copy__(self) -> Array:
        return self  # arrays do not change

    def __deepcopy__(self, memo: Any) -> Array:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("an Array is on its session's devices and cannot be pickled; save its contents, np.asarray(x)")

    def __repr__(self) -> str:
        return f"Array({self._said()})"

    def __str__(self) -> str:
        buffer = self._buffer
        found = buffer.caller.peek(buffer)
        return repr(self) if found is None else str(found)

    def _said(self) -> str:
        """Contents, if they can be had; else shape, type, slice and state."""
        buffer, what = self._buffer, f"{self._abstract!r} on {self._buffer.caller.called(self.slice)}"
        if buffer.gone:
            return f"{what}, {buffer.gone}"
        found = buffer.caller.peek(buffer)
        if buffer.blame is not None:
            return f"{what}, failed: {buffer.blame}"
        if found is not None:
            text = np.array2string(found, separator=", ", prefix="Array(")
            return f"{text}, dtype={self._abstract.dtype}"
        return f"{what}, ready at {duration(buffer.ready_at)}" if buffer.ready_at >= 0 else f"{what}, not ready"


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "//": lambda a, b: a // b, "%": lambda a, b: a % b, "**": lambda a, b: a**b, "@": lambda a, b: a @ b,
    "&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip


def block_until_ready(tree: Any) -> Any:
    """Wait for all arrays of a pytree, and return the pytree. An error of the run that makes one is raised here.

    >>> step = sw.synthetic("step", devices=4, duration="1ms")
    >>> with sw.simulate("B", hosts=2):
    ...     x, y = sw.block_until_ready([step(np.float32(0)), step(np.float32(0))])
    ...     print(x.is_ready(), y.is_ready())
    True True
    """
    if type(tree) is Array:
        in_trace("waiting for contents")
        return tree.block_until_ready()
    arrays, groups = arrays_of(tree)
    for caller in dict.fromkeys([group.caller for group in groups]):
        mine = [group for group in groups if group.caller is caller]
        caller.wait_ready(
            mine, arrays if len(mine) == len(groups) else [x for x in arrays if x._group.caller is caller]
        )
    if [group for group in groups if group.own or group.blame is not None]:
        for array in arrays:
            array._outcome.fail()
    return tree


def get(tree: Any) -> Any:
    """Return the contents of a pytree of arrays, as numpy arrays. All are fetched at the same time.

    >>> double = sw.jit(lambda x: x * 2, devices=2)
    >>> with sw.simulate("B", hosts=2, values="compute"):
    ...     print(sw.get({"a": double(np.float32(1)), "b": double(np.float32(2))}))
    {'a': array(2., dtype=float32), 'b': array(4., dtype=float32)}
    """
    leaves, treedef = trees.flatten(tree)
    buffers = [buffer for array in arrays_of(leaves)[0] if (buffer := array._buffer).host is None]
    for caller in dict.fromkeys(buffer.caller for buffer in buffers):
        caller.fetch([buffer for buffer in buffers if buffer.caller is caller])
    return treedef.unflatten([np.asarray(leaf) for leaf in leaves])


def arrays_of(tree: Any) -> tuple[Sequence[Array], Sequence[ArrayGroup]]:
    """The arrays of a pytree, and their groups. Raises if one of them was given up."""
    in_trace("waiting for contents")
    flat = type(tree) is list or type(tree) is tuple  # and its own leaves, if these are arrays
    try:
        return grouped(tree if flat else trees.flatten_arrays(tree)[0], "use")
    except AttributeError:
        return grouped([leaf for leaf in trees.leaves(tree) if type(leaf) is Array], "use")


def grouped(arrays: Sequence[Array], what: str) -> tuple[Sequence[Array], Sequence[ArrayGroup]]:
    """The arrays, and their groups. Raises if one of them was given up; AttributeError if one of them is no array."""
    each = [array._group for array in arrays]
    groups = each[:1] if each and each.count(each[0]) == len(each) else list(dict.fromkeys(each))
    if [group for group in groups if group.gone]:
        for array in arrays:
            array._check_usable(what)
    return arrays, groups


class CallResults(list[Array]):
    """All results of one call, in order, as arguments of another."""

    __slots__ = ("group",)
    group: ArrayGroup


def all_of_one_call(leaves: Sequence[Any]) -> CallResults | None:
    """These leaves, if they are all results of one call, in order."""
    try:
        groups = [leaf._group for leaf in leaves]
    except AttributeError:  # not all of them are arrays
        return None
    group = groups[0]
    if groups.count(group) < len(groups) or tuple([leaf._name for leaf in leaves]) != group.names:
        return None
    found = CallResults(leaves)
    found.group = group
    return found
