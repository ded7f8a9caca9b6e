"""What a JAX program and the door say to each other, as text, with what devices were asked for in between.

`pytest --rewrite` writes the files anew; review them as a diff.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from backend.door.protocol.ifrt_messages import IfrtRequest, IfrtResponse

from ..session_rig import SessionRig, single, tiled
from .test_arrays import from_shards

GOLDEN = Path(__file__).parents[3] / "golden" / "door"


class WrittenRig(SessionRig):
    """`lines`: requests (>), answers (<) and commands for devices (*), in the order in which they happen."""

    def __init__(self, count: int) -> None:
        super().__init__(count=count)
        self.written: list[str] = []
        self._noted = 0
        receive = self.session.receive

        def received(request: bytes) -> None:
            self.written.append(f"> {_text(IfrtRequest.FromString(request))}")
            receive(request)
            self._note_commands()

        self.session.receive = received  # type: ignore[method-assign]

    def _note_commands(self) -> None:
        log = self.devices.log
        self.written += [f"  * {each}" for each in log[self._noted :]]
        self._noted = len(log)

    def send(self, response: bytes) -> None:
        super().send(response)
        self._note_commands()
        self.written.append(f"< {_text(IfrtResponse.FromString(response))}")


def _text(message: object) -> str:
    return str(text_format.MessageToString(message, as_one_line=True))


def a_scalar_in_a_loop(rig: SessionRig) -> None:
    """jit(f)(numpy x), twice more, then printed."""
    rig.array(1, (1, 2))
    executable = rig.compile()
    rig.ask("loaded_executable_metadata", loaded_executable_handle=executable)
    first = rig.answer(rig.execute(executable, [1])).loaded_executable_execute_response.outputs[0].array_handle
    rig.execute(executable, [first], [2])
    rig.ask("destruct_array", array_handle=[1, first])
    rig.execute(executable, [2], [3])
    rig.ask("destruct_array", array_handle=[2])
    rig.ask("check_value_ready", value_handles=[3])
    rig.contents(3)


def put_on_a_mesh_and_read(rig: SessionRig) -> None:
    """device_put of a numpy array on two devices, then np.asarray of it."""
    for handle, values in ((10, (1, 2)), (11, (3, 4))):
        rig.session.store(handle, np.array(values, np.float32).tobytes())
    from_shards(rig, 1, (4,), tiled([2], [0, 1]), [(10, (2,), [0]), (11, (2,), [1])])
    rig.ask("disassemble_into_single_device_arrays", array_handle=1, result_handles=[2, 3], copy_semantics=1)
    rig.contents(2)
    rig.contents(3)


def an_error_that_travels(rig: SessionRig) -> None:
    """A buffer that is too short, and what was computed from it."""
    executable = rig.compile()
    rig.session.store(1, b"\0" * 4)
    rig.make(1, (2,), single())
    rig.execute(executable, [1], [2])
    rig.ask("check_value_ready", value_handles=[2])
    rig.ask("destruct_array", array_handle=[1, 2])


@pytest.mark.parametrize("exchange", [a_scalar_in_a_loop, put_on_a_mesh_and_read, an_error_that_travels])
def test_an_exchange_is_as_written(exchange: Callable[[SessionRig], None], rewrite: bool) -> None:
    rig = WrittenRig(count=2)
    exchange(rig)
    path = GOLDEN / f"{exchange.__name__}.txt"
    text = f"{exchange.__doc__}\n\n" + "\n".join(rig.written) + "\n"
    if rewrite:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
