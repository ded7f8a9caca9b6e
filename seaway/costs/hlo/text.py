"""Parses HLO text into a `Module` of computations, with operations in the order of the compiler's schedule."""

import re
from functools import cached_property
from math import prod

from .shapes import BadShape, Type, parse_type

HEADER = re.compile(r"(ENTRY )?%?([^\s(]+)(?: \(.*)? -> .*\{$|(ENTRY )?%?([\w.\-]+) \{$")
START = re.compile(r"\s+(ROOT )?%?([^\s=]+) = ")
OPCODE = re.compile(r"\s*([a-z][\w\-]*)\(")
PAREN = re.compile(r"[()]")
COMMENT = re.compile(r"/\*.*?\*/")
CALLED = re.compile(
    r"(calls|to_apply|body|condition|branch_computations|true_computation|false_computation)"
    r"=(\{[^}]*\}|%?[\w.\-]+)"
)
DEVICES = re.compile(r"\b(?:num_partitions|replica_count)=(\d+)")
MARKED = re.compile(r"%([^\s,()]+)")


class HloError(ValueError):
    """The text is not in a known form. The message names the line."""


class Op:
    """One operation: `%name = type opcode(operands), attributes`."""

    __slots__ = ("attributes", "body", "kind", "name", "opcode", "operands")

    def __init__(self, name: str, kind: Type, opcode: str, body: str, attributes: str) -> None:
        self.name = name
        self.kind = kind
        self.opcode = opcode
        self.body = body  # between the parentheses: operands, or a constant's value, or a parameter's number
        self.attributes = attributes
        self.operands = () if opcode in ("constant", "parameter", "iota") else _names(body)

    def called(self, role: str) -> tuple[str, ...]:
        """Names of the computations that the operation calls in a role: calls, to_apply, body, condition, ..."""
        for match in CALLED.finditer(self.attributes):
            if match[1] == role:
                return tuple(name.strip().lstrip("%") for name in match[2].strip("{}").split(",") if name.strip())
        return ()

    def attribute(self, pattern: re.Pattern[str]) -> str:
        match = pattern.search(self.attributes)
        return match[1] if match else ""


class HloComputation:
    def __init__(self, name: str, entry: bool) -> None:
        self.name = name
        self.entry = entry
        self.ops: dict[str, Op] = {}
        self.root = ""

    @cached_property
    def users(self) -> dict[str, list[Op]]:
        found: dict[str, list[Op]] = {name: [] for name in self.ops}
        for op in self.ops.values():
            for operand in dict.fromkeys(op.operands):
                found.setdefault(operand, []).append(op)
        return found

    @cached_property
    def parameters(self) -> list[Op]:
        found = [op for op in self.ops.values() if op.opcode == "parameter"]
        return sorted(found, key=lambda op: int(op.body))

    def operand(self, op: Op, index: int) -> Op:
        try:
            return self.ops[op.operands[index]]
        except (IndexError, KeyError):
            raise HloError(f"{op.opcode} {op.name!r} in {self.name!r} lacks operand {index}") from None


class Module:
    def __init__(self, computations: dict[str, HloComputation], entry: str, devices: int = 1) -> None:
        self.computations = computations
        self.entry = entry
        self.devices = devices

    def __getitem__(self, name: str) -> HloComputation:
        try:
            return self.computations[name]
        except KeyError:
            raise HloError(f"computation {name!r} is called, but is not in the text") from None


def parse(text: str) -> Module:
    computations: dict[str, HloComputation] = {}
    entry = ""
    current: HloComputation | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if current is None:
            if line.endswith("{") and (match := HEADER.match(line)):
                current = HloComputation(match[2] or match[4], bool(match[1] or match[3]))
        elif line.startswith("}"):
            computations[current.name] = current
            entry = current.name if current.entry else entry
            current = None
        elif match := START.match(line):
            try:
                op = _op(line, match)
            except (BadShape, ValueError) as error:
                raise HloError(f"line {number} of the HLO text: {error}: {line.strip()[:200]}") from None
            for name in op.operands:
                _element(current, name)
            current.ops[op.name] = op
            if match[1]:
                current.root = op.name
    if not entry:
        raise HloError("the HLO text has no ENTRY computation")
    return Module(computations, entry, prod(map(int, DEVICES.findall(text.partition("\n")[0]))))


def _element(computation: HloComputation, name: str) -> None:
    """Add the operation `get-tuple-element(%loop), index=3` for `%loop#3`, which JAX 0.12 writes in its place."""
    whole, mark, index = name.rpartition("#")
    if not mark or name in computation.ops or not index.isdigit():
        return
    _element(computation, whole)
    kind = computation.ops[whole].kind if whole in computation.ops else None
    if not isinstance(kind, tuple) or int(index) >= len(kind):
        raise HloError(f"{name!r} in {computation.name!r} is not an element of {whole!r}")
    element = Op(name, kind[int(index)], "get-tuple-element", whole, f", index={index}")
    computation.ops[name] = element


def _op(line: str, start: re.Match[str]) -> Op:
    kind, at = parse_type(line, start.end())
    opcode = OPCODE.match(line, at)
    if opcode is None:
        raise BadShape(f"no operation after the type, at {line[at : at + 40]!r}")
    end = _closing(line, opcode.end())
    return Op(start[2], kind, opcode[1], COMMENT.sub("", line[opcode.end() : end]), line[end + 1 :])


def _closing(line: str, at: int) -> int:
    depth = 1
    for match in PAREN.finditer(line, at):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.start()
    raise BadShape("a parenthesis does not close")


def _names(body: str) -> tuple[str, ...]:
    """Names of operands, written `%a, %b`, or with their types, or without `%`."""
    if "%" in body:
        return tuple(MARKED.findall(body))
    depth, parts = 0, [""]
    for letter in body:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(part.split()[-1] for part in parts if part.strip())
