"""Enqueues gangs in the order of core's commands, from the one thread that may: JAX runs them in that order.

A launch never waits for its inputs, which are futures; it waits only while too many programs are outstanding. A gang
whose inputs are spoilt is launched with placeholders, because its peers' collective waits for this host. When a gang
could not be launched, those behind it are held until core abandons it: otherwise collectives of different gangs would
meet. Neighbours: `compiled_codes`, `store`, `completions`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from core.model import Gang, Plan, Range, ranges
from core.protocol import Blame
from core.protocol import effects as e

from . import jax_errors
from .checkpoints import Checkpoints
from .code import Codes, LaunchableCode
from .completions import Completions, Flight
from .store import Store
from .stored_buffers import OutputRow, StoredBuffer, StoredOutputs


class Launcher:
    """All methods run in the enqueueing thread."""

    def __init__(
        self, store: Store, codes: Codes, completions: Completions, checkpoints: Checkpoints,
        post: Callable[[e.Event], None],
    ) -> None:  # fmt: skip
        self._store, self._codes, self._completions, self._post = store, codes, completions, post
        self._checkpoints = checkpoints
        self._failed = -1  # the launch that failed
        self._held: list[tuple[e.Launch, Plan]] = []

    @property
    def held(self) -> int:
        return len(self._held)

    def launch(self, command: e.Launch, plan: Plan) -> None:
        if self._failed >= 0:
            self._held.append((command, plan))
            return
        gang = plan.steps[command.step]
        assert isinstance(gang, Gang)
        if self._checkpoints.has(plan.id, gang.computation):
            self._checkpoints.launch(command, plan, gang)
            return
        code = self._codes.get(plan.id, gang.computation)
        if code is None:
            self._fail(command, plan, gang, Blame("code", f"the code of {gang.name!r} is not compiled on this host"))
            return
        if self._completions.given_up(command.seq) or (code.multi and not self._completions.room(command.seq)):
            self._skip(command, plan, gang)
            return
        if code.unfit:  # as on all hosts: nobody waits for this one
            self._skip(command, plan, gang, code.unfit)
            self._completions.failed(command.seq, Blame("user", code.unfit))
            return
        try:
            inputs, missing = self._inputs(command, gang, code)
            giving = (
                bool(command.gives) and code.takes and not (missing or command.placeholders)
                and self._checkpoints.may_take(command.seq, command.donated)
            )  # fmt: skip
            begun = self._completions.stamps.now()
            outputs, token = code.launch(inputs, command, giving)
        except Exception as error:
            blame = jax_errors.of(error, together=not code.local)
            # A small program runs while it is enqueued. So the program failed, and not its launch, if no other host
            # takes part, or if one does and is gone. After any other error it is unknown which peers wait for us.
            if code.local or blame.code == "peer":
                self._skip(command, plan, gang, blame.cause)
                self._completions.failed(command.seq, blame)
            else:
                self._fail(command, plan, gang, blame)
            return
        self._enqueued(command, plan, gang, code, outputs, token, missing, begun)

    def _enqueued(
        self, command: e.Launch, plan: Plan, gang: Gang, code: LaunchableCode, outputs: Sequence[Any], token: Any,
        missing: str, begun: int,
    ) -> None:  # fmt: skip
        self._free(command)
        made = self._made(command, plan, gang, code.outputs, outputs)
        blame = Blame("lost", missing) if missing and not command.placeholders else None
        flight = Flight(
            command.seq, token, made, multi=code.multi, together=not code.local, name=gang.name, blame=blame,
            bounds=code.bounds, run=command.run, enqueued=begun, collective=gang.collective,
            devices=code.devices,
        )  # fmt: skip
        self._completions.add(flight)

    def _free(self, command: e.Launch) -> None:
        """What it has taken over."""
        for given in command.gives:
            if isinstance(given, Range):
                self._store.free(given.first, given.count)
            else:
                self._store.free(given)

    def _made(
        self, command: e.Launch, plan: Plan, gang: Gang, row: OutputRow, outputs: Sequence[Any]
    ) -> list[StoredBuffer | StoredOutputs]:
        """The outputs as they are stored: those that core counts as one, as one."""
        if len(outputs) != len(gang.outputs):
            raise ValueError(f"{gang.name!r} made {len(outputs)} outputs, and the plan has {len(gang.outputs)}")
        made: list[StoredBuffer | StoredOutputs] = []
        at, together = 0, row.place is not None and not gang.irregular
        for each in command.makes:
            if isinstance(each, Range) and together:
                arrays = list(outputs[at : at + each.count])
                made.append(self._store.made_together(each.first, row, at, arrays))
                at += each.count
                continue
            for buffer in ranges.each((each,)):
                made.append(self._store.made(buffer, plan.slots[gang.outputs[at]].layout, outputs[at]))
                at += 1
        return made

    def _inputs(self, command: e.Launch, gang: Gang, code: LaunchableCode) -> tuple[list[Any], str]:
        """The inputs, with placeholders for missing ones; and what is missing, as text."""
        found, missing = list[Any](), ""
        for each in command.reads:
            if isinstance(each, Range):
                at = len(found)
                arrays = self._store.arrays(each.first, each.count, code.shardings[at : at + each.count])
                if arrays is not None:
                    found += arrays
                    continue
            missing = self._look_at(ranges.each((each,)), found, missing, gang, code)
        return found, missing

    def _look_at(self, buffers: Sequence[int], found: list[Any], missing: str, gang: Gang, code: LaunchableCode) -> str:
        """Adds each of these inputs to those that were found; returns what is missing first."""
        for number, buffer in enumerate(buffers, len(found)):
            held = self._store.get(buffer)
            array = None if held is None else held.array
            if held is None or array is None:
                reason = held.reason if held is not None else ""
                absent = f"buffer {buffer}, input {number} of {gang.name!r}, is not on this host"
                missing = missing or reason or absent
                array = self._store.placeholder(code.inputs[number])
            elif held.lies is not code.shardings[number]:
                array = _seen_as(array, code.shardings[number])
            found.append(array)
        return missing

    # --- gangs that are not launched ------------------------------------------------------------------------------

    def _fail(self, command: e.Launch, plan: Plan, gang: Gang, blame: Blame) -> None:
        self._failed = command.seq
        self._skip(command, plan, gang, blame.cause)
        self._post(e.LaunchFailed(command.seq, blame))

    def _skip(self, command: e.Launch, plan: Plan, gang: Gang, why: str = "its maker was abandoned") -> None:
        """Skips a gang: its outputs count as made, its donated inputs as gone."""
        for buffer, slot in zip(command.outputs, gang.outputs, strict=True):
            self._store.made(buffer, plan.slots[slot].layout, None).reason = why
        self._free(command)

    def abandon(self, seqs: Sequence[int]) -> None:
        """Ends a failure; launches that were held behind it go on."""
        if self._failed in seqs:
            self._failed = -1
        if self._failed < 0:
            held, self._held = self._held, []
            for command, plan in held:
                self.launch(command, plan)


def _seen_as(array: Any, sharding: Any) -> Any:
    """The same shards, under another sharding object."""
    parts = [part.data for part in array.addressable_shards]
    return jax.make_array_from_single_device_arrays(array.shape, sharding, parts)
