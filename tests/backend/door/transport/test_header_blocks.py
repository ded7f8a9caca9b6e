"""What is remembered of header blocks changes nothing: they mean what `hpack` says they mean."""

from __future__ import annotations

from typing import Any

import pytest
from hpack import Decoder, Encoder, HPACKError
from hypothesis import given
from hypothesis import strategies as st

from backend.door.transport.header_blocks import HeaderReader, HeaderWriter
from tests.laws import examples

headers = st.lists(
    st.tuples(
        st.sampled_from([b":path", b":method", b"te", b"x-bin", b"user-agent"]),
        st.sampled_from([b"/a", b"/b", b"POST", b"trailers", b"y" * 40]),
        st.sampled_from([False, False, False, True]),  # it is not to be kept in the table
    ),
    min_size=1,
    max_size=6,
)
resized = st.sampled_from([None, None, None, 0, 60, 4096])


@given(st.lists(st.tuples(resized, headers), max_size=25))
@examples(100)
def test_law_blocks_are_read_as_by_the_library(
    blocks: list[tuple[int | None, list[tuple[bytes, bytes, bool]]]],
) -> None:
    encoder, reader, decoder = Encoder(), HeaderReader(1 << 16), Decoder(1 << 16)
    for size, each in blocks:
        if size is not None:
            encoder.header_table_size = size
        block = encoder.encode(each, huffman=False)
        assert reader.read(block) == list(decoder.decode(block, raw=True))


@given(st.lists(st.tuples(resized, headers), max_size=25))
@examples(100)
def test_law_what_is_written_is_read_as_it_was_meant(
    blocks: list[tuple[int | None, list[tuple[bytes, bytes, bool]]]],
) -> None:
    writer, decoder = HeaderWriter(), Decoder(1 << 16)
    for size, each in blocks:
        said = [(name, value) for name, value, _ in each]
        if size is not None:
            writer.resize(size)
        assert list(decoder.decode(writer.write(said), raw=True)) == said


def test_a_number_that_the_table_has_not_is_refused_each_time() -> None:
    reader = HeaderReader(1 << 16)
    for _ in range(2):
        with pytest.raises(HPACKError):
            reader.read(b"\x82\xfe")


class Counted:
    """Counts the calls of a method of the library."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> None:
        self.number, method = 0, getattr(kind, name)

        def counted(*given: Any, **more: Any) -> Any:
            self.number += 1
            return method(*given, **more)

        monkeypatch.setattr(kind, name, counted)


def test_the_library_is_asked_once_for_what_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, decoded = Counted(monkeypatch, Encoder, "encode"), Counted(monkeypatch, Decoder, "decode")
    reader, writer = HeaderReader(1 << 16), HeaderWriter()
    same = [(b":status", b"200"), (b"content-type", b"application/grpc")]
    for _ in range(10):
        reader.read(writer.write(same))
    assert (encoded.number, decoded.number) == (2, 3)  # the first changes the table, and is read in two parts
    reader.read(writer.write([*same, (b"x-bin", b"1")]))
    assert (encoded.number, decoded.number) == (3, 4)  # only what follows the numbers is read
    reader.read(writer.write(same))
    assert (encoded.number, decoded.number) == (4, 5)  # they have other numbers now
