"""Whatever is viewed, a view has the contents of its sources, and takes no memory."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.world.script import Handle
from tests.world.test_world import drain
from tests.world.timing import MS, Timing

from .rig import ROWS, WHOLE, begun


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=40, deadline=None)
def test_a_view_has_the_contents_of_its_sources_and_takes_no_memory(seed: int) -> None:
    """Arrays, their shards, and arrays of any of these, viewed again and let go of at any time."""
    rng = Random(seed)
    made, a = begun(timing=Timing(compile=1 * MS))
    wholes = [a.whole() for _ in range(rng.randint(1, 2))]
    pairs: list[list[Handle]] = [[a.pair(pick)] if rng.random() < 0.5 else [] for pick in range(4)]
    arrays = len(wholes) * 8
    most = max(arrays + 8 * len(its) for its in pairs)
    viewed: list[Handle] = []
    for _ in range(rng.randint(1, 12)):
        if rng.random() < 0.3:
            made.run_for(rng.choice((0, MS // 10, 5 * MS)))
        pick = rng.randrange(4)
        if rng.random() < 0.5:
            view = a.shard(rng.choice(wholes), pick)
            pairs[pick].append(view)
        else:
            shards = [
                rng.choice([*((whole, at) for whole in wholes), *((alone, 0) for alone in pairs[at])])
                for at in range(4)
            ]
            view = a.a.view(ROWS, WHOLE, *shards)
            wholes.append(view)
        viewed.append(view)
    gets = [a.a.get(view) for view in viewed]
    kept = [handle for handle in viewed if rng.random() < 0.5]
    a.a.release(*[each for its in (wholes, *pairs) for each in its if each not in kept])
    assert made.run()
    assert all(get.right for get in gets)
    assert max(bytes_ for host in made.fabric.hosts.values() for bytes_ in host.used.values()) <= most
    drain(made)
