"""Views on one host: when they are made, of what, and behind what the memory that they share is free."""

from __future__ import annotations

from core.model.place import line
from core.protocol.effects import Finished, FreeBuffer, Launch, MakeView, Prepare, Received, VoidView
from core.protocol.messages import FoldStep, FreeStep, PoisonStep, RecvStep, RunHeader, ViewStep
from tests.core.hostworld import HOSTS, gang, layout, plan

from .onehost import BAD, NEAR, Host, X, chain, enter

ONE = layout(line(0, 1, 1))  # device 1, on this host


def view(buffer: int, *sources: int, where: object = X) -> ViewStep:
    return ViewStep(buffer, HOSTS, where, sources, 7, 70 + buffer)  # type: ignore[arg-type]


def made(host: Host) -> None:
    """102, which is being made of 50."""
    host.run(chain(2), args=(50,))
    host.read(enter(1, 0))
    host.read(enter(2, 1))


def test_a_view_is_made_behind_all_that_fills_its_sources_and_a_gang_that_reads_it_behind_that() -> None:
    host = Host()
    host.put(50)
    made(host)
    read = plan(2, [X, X], [gang("read", NEAR, (0,), (1,))], args={0: 0}, keep=(1,))
    said = host.read(
        view(60, 50, 102, 102, 102), enter(3, 0, run=2), plans=(read,), runs=(RunHeader(2, 2, 200, (60,)),)
    )
    assert [type(each) for each in said] == [Prepare]
    host.hear(Finished(1))
    said = host.hear(Finished(2))
    views = [each for each in said if isinstance(each, MakeView)]
    order, done = ("order", host.number), ("done", 2)
    assert views == [MakeView(60, X, ((0, 50), (1, 102)), (order, done))]
    (launched,) = [each for each in said if isinstance(each, Launch)]
    assert launched.inputs == (60,)
    assert launched.causes == (order, ("made", 60))
    assert said.index(views[0]) < said.index(launched)


def test_a_view_of_what_is_here_is_made_at_once_and_shares_only_what_is_on_this_host() -> None:
    host = Host()
    host.put(50)
    assert host.read(view(60, 50, where=ONE)) == [MakeView(60, ONE, ((1, 50),), (("order", host.number),))]
    held = {each.buffer: each for each in host.executor.describe().held}
    assert held[60].sources == (50,)
    assert (held[60].client, held[60].name, held[60].ready) == (7, 130, True)
    assert held[50].sources == ()


def test_a_host_remembers_a_view_that_is_folded_and_makes_it_again() -> None:
    host = Host()
    host.put(50)
    host.read(view(60, 50, 50, 50, 50), view(61, 60, 60, 60, 60))
    said = host.read(FoldStep(61), FoldStep(60), FoldStep(60), FoldStep(999))
    assert [each.buffer for each in said if isinstance(each, FreeBuffer)] == [61, 60]
    held = {each.buffer: each for each in host.executor.describe().held}
    assert [(held[each].ready, held[each].spilled, held[each].sources) for each in (60, 61)] == [
        (True, True, (50, 50)), (True, True, (60, 60))
    ]  # fmt: skip
    (again,) = [each for each in host.read(view(60, 50, 50, 50, 50)) if isinstance(each, MakeView)]
    assert again.shards == ((0, 50), (1, 50))
    freed = [each.buffer for each in host.read(FreeStep((61,)), FreeStep((60,))) if isinstance(each, FreeBuffer)]
    assert freed == [60], "there is nothing to free of one that is folded"


def test_shared_memory_is_free_behind_what_reads_the_view() -> None:
    host = Host()
    host.put(50)
    host.read(view(60, 50, 50, 50, 50))
    read = plan(2, [X, X], [gang("read", NEAR, (0,), (1,))], args={0: 0}, keep=(1,))
    host.read(enter(3, 0, run=2), plans=(read,), runs=(RunHeader(2, 2, 200, (60,)),))
    assert host.read(FreeStep((60,)), FreeStep((50,))) == []
    said = host.hear(Finished(3))
    freed = [each.buffer for each in said if isinstance(each, FreeBuffer)]
    assert freed == [60, 50]


def test_a_view_of_a_spoilt_source_is_not_made_and_gangs_that_read_it_are_launched_with_placeholders() -> None:
    host = Host()
    host.read(RecvStep(1, -1, 50, HOSTS, 1, -1, 7, 5, X))
    read = plan(2, [X, X], [gang("read", NEAR, (0,), (1,))], args={0: 0}, keep=(1,))
    host.read(view(60, 50, 50, 50, 50), enter(3, 0, run=2), plans=(read,), runs=(RunHeader(2, 2, 200, (60,)),))
    host.read(PoisonStep(1, BAD))
    said = host.hear(Received(1, BAD))
    assert not [each for each in said if isinstance(each, MakeView)]
    assert VoidView(60, (("order", 2), ("recv", 1))) in said
    (launched,) = [each for each in said if isinstance(each, Launch)]
    assert launched.placeholders
    host.hear(Finished(3))
    freed = [each.buffer for each in host.read(FreeStep((60,)), FreeStep((50,))) if isinstance(each, FreeBuffer)]
    assert freed == [50], "there is nothing to free of the view"
