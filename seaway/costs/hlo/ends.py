"""Arguments and results of a whole computation that no operation moves by itself, in text from before fusion.

A `dot` reads its operands and writes its result. If these are arguments and results of the whole, they are moved then,
and not once more. Elementwise work is fused with what comes before or after it: it reads an argument once, also where a
`dot` reads it too, and what it makes of a `dot`'s result is written instead of that. Neighbours: `tally`; `work`.
"""

from .loops import INDEX
from .shapes import leaves, main_memory
from .text import HloComputation, Module, Op
from .work import MOVING

LAYOUT = {"bitcast", "reshape", "transpose", "copy", "convert", "slice", "dynamic-slice", "opt-barrier"}
INSIDE = {"while", "call", "conditional"}


def unmoved(module: Module, computation: HloComputation) -> int:
    """Bytes of arguments that something else than a moving operation reads, and of results that none writes."""
    read = [each for each in computation.parameters if Reads(module).beside(computation, each)]
    root = computation.ops[computation.root]
    made = [computation.ops[name] for name in root.operands] if root.opcode == "tuple" else [root]
    written = [each for each in made if not _written(computation, each)]
    return sum(main_memory(each.kind) for each in (*read, *written))


class Reads:
    """What reads a value: moving operations alone, or others too; also inside of the loops that it goes into."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._seen: set[tuple[str, str]] = set()

    def beside(self, computation: HloComputation, value: Op) -> bool:
        """Whether anything but a moving operation reads the value."""
        if value.name == computation.root:
            return True
        return any(self._reads(computation, value, user) for user in computation.users[value.name])

    def _reads(self, computation: HloComputation, value: Op, user: Op) -> bool:
        key = computation.name, f"{value.name} {user.name}"
        if key in self._seen:
            return False
        self._seen.add(key)
        if user.opcode in MOVING:
            return False
        if user.opcode in LAYOUT:
            return self.beside(computation, user)
        if user.opcode == "tuple" and user.name != computation.root:
            places = [at for at, name in enumerate(user.operands) if name == value.name]
            return any(self._goes_in(outer, at) for outer in computation.users[user.name] for at in places)
        return True

    def _goes_in(self, outer: Op, place: int) -> bool:
        """The value is a part of what a loop works on."""
        if outer.opcode != "while":
            return True
        body = self._module[outer.called("body")[0]]
        return any(
            self._reads(body, part, user)
            for part in body.users[body.parameters[0].name]
            if part.opcode == "get-tuple-element" and _index(part) == place
            for user in body.users[part.name]
            if user.name != body.root  # which hands it on to the next round
        )


def _index(op: Op) -> int:
    found = INDEX.search(op.attributes)
    return int(found[1]) if found else -1


def _written(computation: HloComputation, made: Op) -> bool:
    """Whether a result is what a moving operation writes, or is made of that, element by element."""
    todo, seen = [made], {made.name}
    while todo:
        op = todo.pop()
        if op.opcode in MOVING:
            return True
        if op.opcode in INSIDE or _elements(op) < _elements(made):
            continue
        for name in op.operands:
            if name in computation.ops and name not in seen:
                seen.add(name)
                todo.append(computation.ops[name])
    return False


def _elements(op: Op) -> int:
    return sum(shape.elements for shape in leaves(op.kind))
