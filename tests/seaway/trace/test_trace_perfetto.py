"""Perfetto JSON: what the Trace Event Format requires of a file, and what ours contains.

Perfetto's own trace processor is a program that its Python package downloads when it is first used, so it is not run
here. `faults` checks the rules of the format that its importer relies on.
"""

import json
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.protocol.messages import Blame
from core.record.trace import FAILED
from core.record.trace import Trace as CoreTrace
from seaway.trace import Trace

from . import traces

Event = dict[str, Any]
NEEDS = {  # by phase: keys that it must have
    "X": {"name", "ts", "dur", "pid", "tid"}, "M": {"name", "pid", "args"}, "C": {"name", "ts", "pid", "args"},
    "b": {"name", "cat", "id", "ts", "pid"}, "e": {"name", "cat", "id", "ts", "pid"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"}, "f": {"name", "cat", "id", "ts", "pid", "tid"},
}  # fmt: skip
METADATA = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}


def faults(text: str) -> list[str]:
    """What is wrong with a file, by the rules of the Trace Event Format."""
    whole = json.loads(text)
    found = [] if whole["displayTimeUnit"] in ("ms", "ns") else ["displayTimeUnit"]
    events: list[Event] = whole["traceEvents"]
    for event in events:
        missing = NEEDS.get(event["ph"], {"a known phase"}) - set(event)
        found += [f"{event} lacks {sorted(missing)}"] if missing else []
        for key in ("pid", "tid"):
            found += [f"{key} of {event}"] if not isinstance(event.get(key, 0), int) else []
        for key in ("ts", "dur"):
            number = event.get(key, 0)
            ok = isinstance(number, int | float) and number >= 0
            found += [] if ok else [f"{key} of {event}"]
        found += [f"args of {event}"] if not isinstance(event.get("args", {}), dict) else []
        if event["ph"] == "M" and METADATA.get(event["name"]) not in event["args"]:
            found.append(f"metadata {event}")
        if event["ph"] == "C" and not all(isinstance(value, int | float) for value in event["args"].values()):
            found.append(f"counter {event}")
    return found + _overlapping(events) + _unpaired(events) + _loose(events)


def _overlapping(events: list[Event]) -> list[str]:
    """Slices of a thread that overlap: they must be apart or inside each other."""
    threads: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin, length = round(event["ts"] * 1_000), round(event.get("dur", 0) * 1_000)
            threads[event["pid"], event["tid"]].append((begin, begin + length))
    found = []
    for thread, slices in threads.items():
        open_: list[int] = []
        for begin, end in sorted(slices, key=lambda pair: (pair[0], -pair[1])):
            while open_ and open_[-1] <= begin:
                open_.pop()
            if open_ and end > open_[-1]:
                found.append(f"slices of thread {thread} cross at {begin}")
            open_.append(end)
    return found


def _unpaired(events: list[Event]) -> list[str]:
    """Each begin of an asynchronous slice, or of an arrow, must have one end, not before it."""
    pairs: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] in "besf":
            kind = "slice" if event["ph"] in "be" else "arrow"
            pairs[kind, event["cat"], str(event["id"])].append(event)
    return [
        f"{key} is not a pair"
        for key, found in pairs.items()
        if [event["ph"] for event in found] not in (["b", "e"], ["s", "f"])
        or found[0]["ts"] > found[1]["ts"]
        or found[0]["name"] != found[1]["name"]
    ]


def _loose(events: list[Event]) -> list[str]:
    """Arrows that do not begin and end inside a slice of their thread."""
    slices = [event for event in events if event["ph"] == "X"]
    return [
        f"arrow {event} touches no slice"
        for event in events
        if event["ph"] in "sf"
        and not any(
            each["pid"] == event["pid"] and each["tid"] == event["tid"]
            and each["ts"] <= event["ts"] < each["ts"] + each["dur"]
            for each in slices
        )
    ]  # fmt: skip


def written(trace: Trace, path: Path, **options: Any) -> list[Event]:
    text = trace.perfetto(path, **{"devices": "all", **options}).read_text(encoding="utf-8")
    assert faults(text) == []
    events: list[Event] = json.loads(text)["traceEvents"]
    return events


def slices(events: list[Event], category: str) -> list[Event]:
    return [event for event in events if event["ph"] == "X" and event["cat"] == category]


# --- what we write ----------------------------------------------------------------------------------------


def test_every_interval_is_a_slice_to_the_nanosecond(tmp_path: Path) -> None:
    trace = Trace(traces.shared(gangs=60))
    events = written(trace, tmp_path / "t.json")
    frame = trace.intervals()
    gangs = slices(events, "gang")
    assert sorted((e["tid"], round(1_000 * e["ts"]), round(1_000 * (e["ts"] + e["dur"]))) for e in gangs) == [
        (device, round(1_000 * start), round(1_000 * end))
        for device, start, end in zip(frame["device"], frame["started_us"], frame["ended_us"], strict=True)
    ]
    assert Counter(e["name"] for e in gangs)["train dan/step"] == 32 * 64
    about = gangs[0]["args"]
    assert about["client"] in ("ann", "bob", "cat", "dan")
    assert about["devices"] == 64


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_any_trace_gives_a_file_that_follows_the_rules(seed: int) -> None:
    core, cluster, truth = traces.drawn(seed)
    with TemporaryDirectory() as folder:
        events = written(Trace(core, cluster), Path(folder) / "t.json")
    for kind, category in (("busy", "gang"), ("skew", "wait"), ("input_wait", "wait")):
        named = {"skew": "waits for peers", "input_wait": "waits for inputs"}.get(kind)
        mine = [e for e in slices(events, category) if named is None or e["name"] == named]
        long = sum(round(1_000 * e["dur"]) for e in mine)
        assert long == sum(what == kind for _, _, _, what in truth), kind


def test_a_process_is_a_host_and_a_thread_is_a_device(tmp_path: Path) -> None:
    core, cluster = traces.pipeline(steps=1)
    events = written(Trace(core, cluster), tmp_path / "t.json")
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(names.values())[:3] == ["c0 / host 0", "c0 / host 1", "c0 / host 2"]
    assert len(names) == 16 + 2
    for event in slices(events, "gang"):
        assert threads[event["pid"], event["tid"]] == f"device {event['tid']}"
        assert names[event["pid"]].endswith(f"/ host {cluster.host_of(event['tid'])}")


def test_a_transfer_is_an_arrow_from_its_maker_to_its_reader(tmp_path: Path) -> None:
    core, cluster = traces.pipeline(microbatches=3, steps=1)
    events = written(Trace(core, cluster), tmp_path / "t.json")
    arrows: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            arrows[event["id"]].append(event)
    assert len(arrows) == len(core.transfers)
    first = arrows[core.transfers.row(0)["seq"]]
    ends = [
        next(
            gang["name"] for gang in slices(events, "gang")
            if gang["tid"] == end["tid"] and gang["ts"] <= end["ts"] < gang["ts"] + gang["dur"]
        )
        for end in first
    ]  # fmt: skip
    assert ends == ["pipeline/forward 0", "pipeline/forward 0"]
    assert [a["tid"] for a in first] == [0, 32]
    moves = [e for e in events if e["ph"] == "b" and e["cat"] == "transfer"]
    assert moves[0]["args"] == {"seq": 1, "nbytes": 64 << 20, "source": "devices 0-31", "target": "devices 32-63"}


def test_runs_of_a_client_and_memory_are_shown(tmp_path: Path) -> None:
    core, cluster = traces.pipeline(microbatches=2, steps=2)
    core.submitted(9, 1, 9, "broken", 1_000)
    core.ended(9, 2_000, Blame("user", "no such kernel"))
    core.gang(900, 9, "bad", 0, 0, started=10**8, ended=10**8 + 10, flags=FAILED)
    events = written(Trace(core, cluster), tmp_path / "t.json")
    runs = [e for e in events if e["ph"] == "b" and e["cat"] == "run"]
    assert [e["name"] for e in runs] == ["pipeline", "pipeline", "broken"]
    assert runs[-1]["args"]["failed"] == "user"
    assert [e["name"] for e in slices(events, "gang") if e["args"].get("failed")] == ["bad"] * 32
    levels = [e for e in events if e["ph"] == "C"]
    assert len(levels) == len(core.memory)
    assert levels[0]["args"] == {"resident": 1 << 28, "committed": 2 << 28}


def test_a_window_and_some_devices_can_be_selected(tmp_path: Path) -> None:
    trace = Trace(traces.shared(gangs=60))
    events = written(trace, tmp_path / "deep" / "t.json", window=("1ms", "2ms"), devices=[3, 9])
    gangs = slices(events, "gang")
    assert {e["tid"] for e in gangs} == {3, 9}
    assert len(gangs) == 2 * len(trace.gangs(("1ms", "2ms")))
    with pytest.raises(ValueError, match=r"3,840 device intervals; limit=100"):
        trace.perfetto(tmp_path / "no.json", limit=100)
    assert not (tmp_path / "no.json").exists()


def test_many_devices_are_sampled_unless_all_are_asked_for(tmp_path: Path) -> None:
    trace = Trace(traces.shared(gangs=3, hosts=64))
    text = trace.perfetto(tmp_path / "some.json").read_text(encoding="utf-8")
    some = json.loads(text)
    assert some["otherData"]["devices"] == "64 of 256"
    assert {e["tid"] for e in slices(some["traceEvents"], "gang")} == set(trace.sample(64).tolist())
    assert "(the file has 64 of 256 devices)" in text
    every = json.loads(trace.perfetto(tmp_path / "all.json", devices="all").read_text(encoding="utf-8"))
    assert every["otherData"]["devices"] == "all 256"
    assert len({e["tid"] for e in slices(every["traceEvents"], "gang")}) == 256


def test_an_empty_trace_gives_a_file_too(tmp_path: Path) -> None:
    core = CoreTrace()
    core.place(0, 0, ((0, 2),))
    core.client(1, 'a "quoted" näme', 1, 0, 0)
    core.gang(1, -1, "step", 0, 0, started=0, ended=5)
    events = written(Trace(core), tmp_path / "t.json")
    assert 'a "quoted" näme (weight 1)' in [e["args"].get("name") for e in events]
    assert [e["name"] for e in slices(events, "gang")] == ["step", "step"]
    assert written(Trace(CoreTrace()), tmp_path / "none.json")
