"""What is remembered of header blocks changes nothing: they mean what `hpack` says they mean."""

from __future__ import annotations

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
