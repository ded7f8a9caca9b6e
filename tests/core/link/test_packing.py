"""A packed plan unpacks to the same plan, and has each place and layout once."""

import msgspec
import pytest

from core.compile import cut, lower
from core.link.packing import GangRow, PackedOrdered, PackedPlan, pack, pack_plan, unpack, unpack_plan
from core.model.plan import Gang, Layout, Plan, Slot
from core.model.program import Program
from core.protocol.messages import Ordered
from tests.core.build import at_home, chain, fan_out, hop, moe, pipeline, places

PROGRAMS = [chain(3), hop(5), fan_out(3), pipeline(2, 3), moe()]


def plan_of(program: Program) -> Plan:
    where = places(program, islands=2)
    return lower(program, where, at_home(program, where), ident=7)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_packed_plan_unpacks_to_the_same_plan(program: Program) -> None:
    plan = plan_of(program)
    for each in (plan, cut(plan, 0), cut(plan, 1), cut(plan, 9)):
        message = Ordered(0, 1, 2, 3, ((0, 4),), 5, (each, each), (), ())
        data = msgspec.msgpack.encode(pack(message))
        assert unpack(msgspec.msgpack.decode(data, type=PackedOrdered)) == message


def test_each_place_and_layout_is_written_once() -> None:
    packed = pack_plan(plan_of(pipeline(2, 8)))
    assert len(packed.places) == 2
    assert len(packed.layouts) == len(set(packed.layouts)) == 4  # activations and weights of two stages


def test_without_plans_the_bytes_are_the_same() -> None:
    message = Ordered(0, 1, 2, 3, ((0, 4),), 5, (), (), ())
    assert msgspec.msgpack.encode(pack(message)) == msgspec.msgpack.encode(message)


def test_the_packed_forms_have_the_same_fields() -> None:
    for packed, plain in ((PackedOrdered, Ordered), (GangRow, Gang)):
        assert packed.__struct_fields__ == plain.__struct_fields__
    assert Slot.__struct_fields__[0] == "layout"
    assert Layout.__struct_fields__ == ("shape", "dtype", "place", "mesh", "sharding")
    assert set(Plan.__struct_fields__) < set(PackedPlan.__struct_fields__)


@pytest.mark.parametrize("number", [-1, 99])
def test_indices_out_of_range_are_refused(number: int) -> None:
    good = pack_plan(plan_of(chain(2)))
    gang = good.steps[0]
    assert isinstance(gang, GangRow)
    replace = msgspec.structs.replace
    shape, dtype, _, mesh, sharding = good.layouts[0]
    for bad in (
        replace(good, slots=((number, *good.slots[0][1:]),)),
        replace(good, steps=(replace(gang, place=number),)),
        replace(good, layouts=((shape, dtype, number, mesh, sharding),)),
    ):
        with pytest.raises(ValueError, match="there is no entry"):
            unpack_plan(bad)
