"""Calls of programs into their clients' processes, as bytes: what is said is what is heard, and nonsense is refused."""

from __future__ import annotations

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from backend.contents import callbacks
from backend.contents.callbacks import CallbackFault, Joined

DTYPES = [np.dtype(each) for each in ("bool", "int8", "uint64", "float16", "float64", "complex64")]
VALUES = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0))
)
BFLOAT = np.asarray([1.5, -2], ml_dtypes.bfloat16)


@given(st.lists(VALUES | st.none() | st.just(BFLOAT)), st.integers(0, 1 << 40))
def test_operands_and_results_arrive_as_they_were(values: list[np.ndarray | None], function: int) -> None:
    number, found = callbacks.call_of(callbacks.asked(function, values))
    assert number == function
    for there in (found, callbacks.results_of(callbacks.answered(values))):
        for each, value in zip(there, values, strict=True):
            if value is None:
                assert each is None  # a token
            else:
                assert (each.dtype, each.shape, each.tobytes()) == (value.dtype, value.shape, value.tobytes())


def test_a_failure_is_raised_with_its_reason_and_a_long_one_keeps_both_ends() -> None:
    with pytest.raises(CallbackFault, match="no room"):
        callbacks.results_of(callbacks.failed("no room"))
    with pytest.raises(CallbackFault) as caught:
        callbacks.results_of(callbacks.failed("Traceback\n" + 10_000 * "x" + "\nValueError: no room"))
    assert str(caught.value).startswith("Traceback")
    assert str(caught.value).endswith("ValueError: no room")
    assert len(str(caught.value)) < 2000


@given(st.lists(st.tuples(st.integers(0, (1 << 64) - 1), st.binary(max_size=50))), st.integers(1, 20))
def test_messages_are_joined_of_pieces_of_any_size(messages: list[tuple[int, bytes]], size: int) -> None:
    whole, callbacks.PIECE = callbacks.PIECE, size
    try:
        sent = [piece for message in messages for piece in callbacks.pieces(*message)]
    finally:
        callbacks.PIECE = whole
    joined = Joined()
    assert [found for piece in sent if (found := joined.take(piece)) is not None] == messages


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    for read in (callbacks.call_of, callbacks.results_of, callbacks.split, Joined().take):
        try:
            read(data)
        except CallbackFault:
            pass


@pytest.mark.parametrize(
    "operand", [("float32", (2,), b"1234"), ("float32", (-1,), b"1234"), ("object", (1,), b"12345678"), ("V9", (), b"")]
)
def test_arrays_that_cannot_be_are_refused(operand: callbacks.Operand) -> None:
    body = msgspec.msgpack.encode(callbacks.CallAnswered((operand,)))
    with pytest.raises(CallbackFault, match="cannot be read"):
        callbacks.results_of(body)


def test_a_message_that_never_ends_is_refused_before_memory_is() -> None:
    joined, piece = Joined(), callbacks.REST.pack(1) + bytes(1 << 10)
    whole, callbacks.LARGEST = callbacks.LARGEST, 4 << 10
    try:
        assert joined.take(piece) is joined.take(piece) is joined.take(piece) is None
        with pytest.raises(CallbackFault, match="more than"):
            joined.take(piece)
    finally:
        callbacks.LARGEST = whole
