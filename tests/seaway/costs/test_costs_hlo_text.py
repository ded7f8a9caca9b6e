"""HLO text as compilers write it: types, operations, replica groups."""

from pathlib import Path

import pytest

from seaway.costs.hlo import HloError, parse
from seaway.costs.hlo.groups import ATTRIBUTE, BadGroups, members, nested, pairs_of, rings
from seaway.costs.hlo.shapes import BadShape, HloShape, leaves, main_memory, parse_type

REAL = Path(__file__).with_name("hlo") / "async_v5e.txt"


# --- types ----------------------------------------------------------------------------------------------


def test_a_type_has_its_dimensions_and_its_memory_space() -> None:
    kind, end = parse_type("bf16[64,1024]{1,0:T(8,128)(2,1)S(1)} fusion(", 0)
    assert kind == HloShape("bf16", (64, 1024), space=1)
    assert end == len("bf16[64,1024]{1,0:T(8,128)(2,1)S(1)}")
    assert kind.nbytes == 64 * 1024 * 2
    assert main_memory(kind) == 0


def test_tuples_nest_and_may_contain_comments() -> None:
    kind, _ = parse_type("((f32[2]{0}, token[]), pred[], /*index=2*/s4[3]{0}) x", 0)
    assert kind == ((HloShape("f32", (2,)), HloShape("token")), HloShape("pred"), HloShape("s4", (3,)))
    assert [shape.dtype for shape in leaves(kind)] == ["f32", "token", "pred", "s4"]
    assert [shape.nbytes for shape in leaves(kind)] == [8, 0, 1, 2]  # three elements of four bits are two bytes


def test_an_unknown_element_type_is_refused() -> None:
    kind, _ = parse_type("q17[3]", 0)
    with pytest.raises(BadShape, match="q17"):
        main_memory(kind)


# --- operations -----------------------------------------------------------------------------------------


def test_operations_are_read_with_or_without_percent_signs_and_operand_types() -> None:
    marked = parse("HloModule m\n\nENTRY %main (a: f32[2]) -> f32[2] {\n  %a = f32[2]{0} parameter(0)\n"
                   "  ROOT %b = f32[2]{0} add(f32[2]{0} %a, %a), metadata={op_name=\"f(x)\"}\n}\n")  # fmt: skip
    plain = parse(
        "HloModule m\n\nENTRY main {\n  a = f32[2]{0} parameter(0)\n  ROOT b = f32[2]{0} add(f32[2]{0} a, a)\n}\n"
    )
    for module in (marked, plain):
        entry = module[module.entry]
        assert (module.entry, entry.root) == ("main", "b")
        assert entry.ops["b"].operands == ("a", "a")


def test_get_tuple_element_may_be_written_without_a_type() -> None:
    text = """HloModule m
    ENTRY %main (p: (s32[], f32[4])) -> f32[4] {
      %p = (s32[], f32[4]{0}) parameter(0)
      ROOT %n = f32[4]{0} negate(%p#1)
    }
    """
    entry = parse(text.replace("\n    ", "\n"))["main"]
    assert entry.ops["p#1"].opcode == "get-tuple-element"
    assert entry.ops["p#1"].kind == HloShape("f32", (4,))


def test_the_number_of_partitions_is_read() -> None:
    body = "\nENTRY %main () -> f32[] {\n  ROOT %c = f32[] constant(1)\n}\n"
    assert parse("HloModule m, is_scheduled=true, num_partitions=32" + body).devices == 32
    assert parse("HloModule m, replica_count=4, num_partitions=8" + body).devices == 32
    assert parse("HloModule m" + body).devices == 1


def test_real_text_is_read_completely() -> None:
    text = REAL.read_text()
    module = parse(text)
    assert module.devices == 32
    written = sum(" = " in line for line in text.splitlines())
    assert sum(len(one.ops) for one in module.computations.values()) == written
    called = [name for one in module.computations.values() for op in one.ops.values() for name in op.called("calls")]
    assert called
    assert all(name in module.computations for name in called)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no ENTRY"),
        ("ENTRY %m () -> f32[] {\n  ROOT %c = f32[ constant(1)\n}\n", "line 2"),
        ("ENTRY %m () -> f32[] {\n  ROOT %c = f32[] add(%a, (%b)\n}\n", "does not close"),
    ],
)
def test_text_that_is_not_hlo_names_the_line(text: str, says: str) -> None:
    with pytest.raises(HloError, match=says):
        parse(text)


# --- replica groups -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "devices", "groups"),
    [
        ("{{0,1},{2,3}}", 4, [[0, 1], [2, 3]]),
        ("{}", 3, [[0, 1, 2]]),
        ("[2,4]<=[8]", 8, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("[4,2]<=[2,4]T(1,0)", 8, [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("[2,4]<=[2,2,2]T(1,0,2)", 8, [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("mesh['a'=2,'b'=4] {'a'}", 8, [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("mesh['a'=2,'b'=4] {'b'}", 8, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("mesh['a'=2,'b'=2,'c'=2] {'a','c'}", 8, [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("mesh['a'=2,'b'=4] {'b':(1)2}", 8, [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ("mesh['a'=2,'b'=4] {'b':(2)2}", 8, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("mesh['a'=2,'b'=4] {'b':(1)2,'a'}", 8, [[0, 4, 2, 6], [1, 5, 3, 7]]),
        ("mesh['a'=8] {'a':(1)2,'a':(4)2}", 8, [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("mesh['a'=4], device_ids=(3,2,1,0) {'a'}", 4, [[3, 2, 1, 0]]),
        ("mesh['a'=2,'b'=2], device_ids=(0, 2, 1, 3) {'b'}", 4, [[0, 2], [1, 3]]),
        ("mesh['a'=2,'b'=3], device_ids=([3,2]T(1,0)) {'a'}", 6, [[0, 1], [2, 3], [4, 5]]),
        ("mesh['a'=2,'b'=3], device_ids=([3,2]T(1,0)) {'b'}", 6, [[0, 2, 4], [1, 3, 5]]),
        ("mesh['a'=1,'b'=2,'c'=3], device_ids=([3,2]T(1,0)) {'c'}", 6, [[0, 2, 4], [1, 3, 5]]),
        ("mesh['a'=2,'b'=4], device_ids=([2,2,2]T(2,1,0)) {'b':(2)2}", 8, [[0, 4], [2, 6], [1, 5], [3, 7]]),
        ("mesh['a'=2,'b'=4], device_ids=([8]) {'a'}", 8, [[0, 4], [1, 5], [2, 6], [3, 7]]),
    ],
)
def test_groups_are_read_in_every_notation(text: str, devices: int, groups: list[list[int]]) -> None:
    assert members(text, devices) == groups


def test_groups_of_a_large_mesh_are_read_along_either_axis() -> None:
    assert nested(members("[256,8]<=[2048]", 2048), 2048) == (((8, 1),), True)
    assert nested(members("[8,256]<=[256,8]T(1,0)", 2048), 2048) == (((256, 8),), True)
    assert nested(members("{}", 2048), 2048) == ((), True)


def test_groups_of_a_mesh_with_transposed_devices_are_read() -> None:
    """As libtpu writes them where matrices are split over 16 neighbours: those are the minor axis of the devices."""
    neighbours = [[16 * row + place for place in range(16)] for row in range(64)]
    text = "mesh['axis_0'=16,'axis_1'=64], device_ids=([64,16]T(1,0)) {'axis_0'}"
    assert members(text, 1024) == neighbours
    assert nested(members(text, 1024), 1024) == (((16, 1),), True)

    text = "mesh['axis_0'=1,'axis_1'=16,'axis_2'=32], device_ids=([32,16]T(1,0)) {'axis_1'}"
    assert members(text, 512) == neighbours[:32]
    assert nested(members(text.replace("{'axis_1'}", "{'axis_2'}"), 512), 512) == (((32, 16),), True)


@pytest.mark.parametrize("sub_axes", ["{'axis_0'}", "{'axis_1'}", "{'axis_0','axis_1'}", "{'axis_1':(2)4}"])
def test_the_groups_of_an_operation_are_found_among_its_attributes(sub_axes: str) -> None:
    groups = f"mesh['axis_0'=4,'axis_1'=8], device_ids=([8,4]T(1,0)) {sub_axes}"
    line = f"channel_id=9, replica_groups={groups}, dimensions={{0}}, use_global_device_ids=true"
    found = ATTRIBUTE.search(line)
    assert found is not None
    assert found[1] == groups
    assert sorted(device for group in members(found[1], 32) for device in group) == list(range(32))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mesh['a'=2,'b'=2], device_ids=(0,1,2) {'a'}", "3 devices for 4 places"),
        ("mesh['a'=2,'b'=2], device_ids=([4,2]T(1,0)) {'a'}", "8 devices for 4 places"),
        ("mesh['a'=2] {'c'}", "'c', which is no axis"),
        ("mesh['a'=6] {'a':(1)4}", "do not add up to it"),
        ("mesh['a'=6] over {'a'}", "in an unknown notation"),
    ],
)
def test_invalid_groups_are_refused(text: str, says: str) -> None:
    with pytest.raises(BadGroups, match=says):
        members(text, 4)


def test_groups_over_two_axes_that_are_not_neighbours_are_nested() -> None:
    assert nested(members("mesh['a'=4,'b'=3,'c'=2] {'a','c'}", 24), 24) == (((4, 6), (2, 1)), True)


def test_groups_without_strides_are_marked() -> None:
    _, exact = nested([[0, 1, 5], [2, 3, 4]], 6)
    assert not exact
    _, exact = nested([[0, 1], [2, 4], [3, 5]], 6)
    assert not exact


def test_a_permutation_groups_the_devices_that_send_to_each_other() -> None:
    pairs = pairs_of("{0,4},{4,0},{1,5},{5,1},{2,6},{3,7}")
    assert rings(pairs) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert nested(rings([(i, (i + 1) % 8) for i in range(8)]), 8) == ((), True)
