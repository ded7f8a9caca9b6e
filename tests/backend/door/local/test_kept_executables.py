"""Executables that are kept over sessions: the least used go first, and there are never more than are allowed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backend.door.local.kept_executables import KeptExecutables, key_of

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])


@given(st.lists(st.tuples(KEYS, st.none() | st.integers(0, 60)), max_size=60))
def test_it_is_a_list_of_which_the_end_is_cut_off(calls: list[tuple[bytes, int | None]]) -> None:
    """A call finds (None) or keeps something of so many bytes. The oracle is a list, the last used first."""
    kept, line = KeptExecutables[int](most=3, most_bytes=100), list[tuple[bytes, int, int]]()
    for number, (key, nbytes) in enumerate(calls):
        mine = [each for each in line if each[0] == key]
        if nbytes is None:
            assert kept.find(key) == (mine[0][1] if mine else None)
            line = mine + [each for each in line if each[0] != key]
        else:
            kept.keep(key, number, nbytes)
            line = [(key, number, nbytes)] + [each for each in line if each[0] != key]
            while len(line) > 3 or sum(size for *_, size in line) > 100:
                line.pop()
        assert (len(kept), kept.nbytes) == (len(line), sum(size for *_, size in line))


def test_the_key_tells_a_program_from_its_options_and_devices() -> None:
    asked = [(b"ab", b"c", (0, 1)), (b"a", b"bc", (0, 1)), (b"ab", b"c", (1, 0)), (b"ab", b"", (0, 1))]
    assert len({key_of(*each) for each in asked}) == len(asked)
