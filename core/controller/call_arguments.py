"""The arguments of a call: what they stand for, what is wrong with them, and how they lie.

Neighbours: `runs` submits and lowers; `buffer_names` knows what is counted as one.
"""

from itertools import pairwise

from ..model import MAX_LITERALS, Layout, Range, ranges, validate_literals
from ..protocol import Submit
from .buffer_names import BufferNames
from .config import Config
from .records import BufferName, ClientRecord, ProgramRecord, RunRecord


def sources_of(
    session: ClientRecord, program: ProgramRecord, call: Submit, names: BufferNames, config: Config
) -> tuple[dict[int, BufferName | bytes], dict[int, int], int] | str:
    """What the arguments of a call stand for, which of them are several as one, and how many of them are buffers;
    or what is wrong with the call."""
    if call.run <= session.last_run:
        return f"run {call.run} does not come after run {session.last_run}"
    if len(session.runs) >= config.max_runs:
        return f"it has {len(session.runs)} runs that have not ended, which is the limit"
    known = session.names
    sources: dict[int, BufferName | bytes] = {}
    width: dict[int, int] = {}  # a later argument may have what it names cut, see `BufferNames.cut_arguments`
    index, literal, reads, unknown = 0, 0, 0, ""
    for arg in call.args:
        if isinstance(arg, bytes):
            literal += len(arg)
            sources[index] = arg
            index += 1
            continue
        first, count = (arg, 1) if isinstance(arg, int) else (arg.first, arg.count)
        reads += 1
        named = known.get(first)
        whole = named is not None and named.count == count
        found = [named] if named is not None and whole else names.called(session, first, count)
        if found is None and not unknown:
            at = next(at for at in range(count) if known.find(first + at) is None)
            unknown = f"argument {index + at} names buffer {first + at!r}, which this client does not hold"
        for named in found or ():
            sources[index + named.name - first] = named
            if named.count > 1:
                width[index + named.name - first] = named.count
        index += count
    fresh, made = _fresh(call.results, session)
    if index != len(program.ir.args) or made != len(program.ir.results):
        return f"run {call.run} of {program.ir.name!r} has the wrong number of arguments or results"
    if literal > config.literal_limit:
        return f"run {call.run} has literals of more than {config.literal_limit} bytes"
    if unknown:
        return f"run {call.run}: {unknown}"
    if not fresh and any(call.results) and _in_use(session, call):
        return f"run {call.run} gives a result a name that is in use"
    return sources, width, reads


def _fresh(results: tuple[int | Range, ...], session: ClientRecord) -> tuple[bool, int]:
    """Whether they have one name, or one range of names, later than all before; and how many they are."""
    if len(results) == 1:
        (named,) = results
        if isinstance(named, int):
            return named > session.top, 1
        return named.first > session.top, named.count
    return False, ranges.number(results)


def _in_use(session: ClientRecord, call: Submit) -> bool:
    names = session.names
    given = [each for each in call.results if each]
    taken = [(each, each + 1) if isinstance(each, int) else (each.first, each.first + each.count) for each in given]
    taken.sort()
    if taken[0][0] < 0 or any(low < high for (_, high), (low, _) in pairwise(taken)):
        return True
    if taken[0][0] > session.top:
        return False
    return any(names.find(name) is not None for low, high in taken for name in range(low, high))


def one_by_one(layouts: tuple[Layout | tuple[Layout, ...], ...]) -> tuple[Layout, ...]:
    found: list[Layout] = []
    for layout in layouts:
        if isinstance(layout, Layout):
            found.append(layout)
        else:
            found.extend(layout)
    return tuple(found)


def check_literals(run: RunRecord) -> None:
    """Raises ProgramError unless literals have the sizes of their values, and are not too many."""
    literal = 0
    for index, source in run.sources.items():
        if isinstance(source, bytes):
            nbytes = run.program.nbytes[index]
            literal += nbytes if len(source) == nbytes else MAX_LITERALS + 1
    if literal > MAX_LITERALS:
        validate_literals(run.program.ir, ranges.each(run.call.args))  # which says what is wrong
