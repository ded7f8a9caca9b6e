"""What a client's machine makes of calls to `view`, before the controller hears of them."""

from __future__ import annotations

import pytest

from core.model.errors import Illegal
from tests.world.test_world import drain

from .rig import PAIR, ROWS, WHOLE, begun, one


def test_a_view_names_one_shard_for_each_device_of_buffers_that_the_client_holds() -> None:
    made, a = begun()
    whole = a.whole()
    with pytest.raises(Illegal, match="a view on slice 's' takes a shard for each of its 4 devices, not 1"):
        a.a.view(ROWS, WHOLE, (whole, 0))
    with pytest.raises(Illegal, match="buffer 99 was never named by this client"):
        a.a.machine.view(PAIR, one(0), ((99, 0),), made.now)
    a.a.release(whole)
    with pytest.raises(Illegal, match="buffer 1 was released; keep it until its last use"):
        a.shard(whole, 0)
    assert made.run()
    drain(made)
