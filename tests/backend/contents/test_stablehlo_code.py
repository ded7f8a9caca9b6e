"""StableHLO code as bytes, and the answers to its questions: what goes in comes out, and nothing else is taken."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.contents import StableHLOCode
from backend.contents import stablehlo_code as codes

ABOUT = codes.CompiledAbout(
    b"print", (b"\x08\x03", b""), None, ("{1,0}",), codes.AboutError(12, "no layouts"), ("device",), {"temp": 7}, 9
)


@given(st.binary(), st.binary(), st.sampled_from(codes.QUESTIONS))
def test_code_is_the_same_after_it_has_travelled(program: bytes, options: bytes, question: str) -> None:
    code = StableHLOCode(program, options, question)
    assert codes.is_stablehlo(code.encode())
    assert codes.decode(code.encode()) == code
    assert code.compiled == (question in ("", "text", "costs"))


@given(st.binary().filter(lambda blob: not blob.startswith(codes.MAGIC)))
def test_other_bytes_are_not_taken_for_code(blob: bytes) -> None:
    assert not codes.is_stablehlo(blob)
    with pytest.raises(codes.MalformedCode, match="does not begin"):
        codes.decode(blob)


@given(st.binary(min_size=1), st.integers(0))
def test_damaged_code_is_malformed_or_other_code(junk: bytes, at: int) -> None:
    """Never another error."""
    whole = StableHLOCode(b"program", b"options").encode()
    at = len(codes.MAGIC) + at % (len(whole) - len(codes.MAGIC))
    with suppress(codes.MalformedCode):
        assert isinstance(codes.decode(whole[:at] + junk), StableHLOCode)


def test_code_with_an_unknown_question_is_malformed_and_told_the_known_ones() -> None:
    with pytest.raises(codes.MalformedCode, match="asks 'weather'; known are '', 'text', 'costs'"):
        codes.decode(StableHLOCode(b"", b"", "weather").encode())


def test_what_is_said_of_code_a_platform_and_costs_is_the_same_after_it_has_travelled() -> None:
    assert codes.compiled_about(codes.encode_about(ABOUT)) == ABOUT
    assert codes.costs_of(codes.encode_costs({"flops": 3.0})) == {"flops": 3.0}
    attributes: Any = {"coords": (0, 1, 0), "slice_index": 0, "name": "x", "fast": True, "speed": 1.5}
    device = codes.PlatformDevice("TPU v4", ("device", "pinned_host"), 0, "TpuDevice(id=0)", "TPU_0", attributes)
    about = codes.PlatformAbout("tpu", "libtpu", "tfrt", 6, (device,))
    assert codes.platform_about(codes.encode_about(about)) == about


@given(st.text(max_size=200))
def test_a_text_is_the_same_after_it_has_travelled(text: str) -> None:
    assert codes.text_of(codes.encode_text(text)) == text.encode(errors="replace").decode()


def test_a_text_too_long_for_an_answer_is_cut_at_a_line_and_says_so() -> None:
    lines = [f"line {number * 2654435761 % 2**32:x} {number**3 * 40503 % 2**61:x}" for number in range(150_000)]
    said = codes.encode_text("\n".join(lines))
    assert len(said) <= codes.ABOUT_LIMIT
    *kept, end = codes.text_of(said).removesuffix("\n").split("\n")
    assert end == "... (the rest of the text is left out)"
    assert len(kept) > 10_000
    assert kept == lines[: len(kept)] or kept[:-1] == lines[: len(kept) - 1]


@pytest.mark.parametrize("read", [codes.compiled_about, codes.platform_about, codes.costs_of, codes.text_of])
def test_an_answer_that_is_none_is_malformed(read: object) -> None:
    assert callable(read)
    for junk in (b"", b"\xc1", b"[1]", b"5"):
        with pytest.raises(codes.MalformedCode):
            read(junk)
