"""One host of eight devices saves and restores in order, without delaying other gangs; and its errors."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backend.checkpoint import documents, files, folders, zarrs
from backend.checkpoint.chunks import chunk_of
from backend.checkpoint.documents import ArrayEntry, Document, Request
from backend.contents import shard_io
from backend.pjrt import checkpoints
from backend.pjrt.checkpoints import Checkpoints
from core.model.plan import Plan
from core.model.program import Arg, Out
from core.protocol import effects as e
from core.protocol.messages import Blame

from .pjrt_rig import Rig, Work, value
from .pjrt_stage import ARRAY, COLUMNS, DEVICES, HERE, MESH, ROWS, WHOLE, adding, layout

PATIENCE = 120.0
TOKEN = value((1,), (), "int32")
REQUEST = value((documents.LEAST,), (), "uint8")
LOOKS = {"rows": ROWS, "columns": COLUMNS, "whole": WHOLE}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[Rig]:
    rig = Rig(DEVICES, checkpoints=folder)
    yield rig
    rig.close()


@pytest.fixture
def rig(shared: Rig) -> Iterator[Rig]:
    yield shared
    shared.seen.clear()


_idents = iter(range(100, 1000))


def entry(look: Any, name: str = "x") -> ArrayEntry:
    dims = look.sharding.dims
    return ArrayEntry(name, look.dtype, look.shape, dims, chunk_of(look.shape, look.dtype, dims, MESH))


def saving(rig: Rig, look: Any) -> Plan:
    work = Work(MESH, REQUEST, look)
    document = documents.encode(Document("save", MESH, (entry(look),)))
    token = work.call("save", None, [Arg(0), Arg(1)], [REQUEST, look], [TOKEN], exported=document, irregular=True)
    whole = ArrayEntry("x", look.dtype, look.shape, (), entry(look).chunk)
    document = documents.encode(Document("commit", (), (whole,)))
    done = work.call("commit", None, [Arg(0), token], [REQUEST, TOKEN], [TOKEN], exported=document, irregular=True)
    return rig.ready(work, done, ident=next(_idents))


def restoring(rig: Rig, look: Any) -> Plan:
    work = Work(MESH, REQUEST)
    entries = (ArrayEntry("x", look.dtype, look.shape, look.sharding.dims),)
    document = documents.encode(Document("read", MESH, entries))
    token = work.call("read", None, [Arg(0)], [REQUEST], [TOKEN], exported=document, irregular=True)
    document = documents.encode(Document("load", MESH, entries))
    made = work.call("load", None, [token], [TOKEN], [look], exported=document)
    return rig.ready(work, made, ident=next(_idents))


def request(rig: Rig, step: int, folder: str = "run", nonce: int = 0, **options: Any) -> int:
    asked = Request(folder, step, f"{nonce or step:016x}", **options)
    return rig.literal(layout(REQUEST), documents.as_array(asked))


def ended(rig: Rig, seq: int) -> e.Finished:
    found: e.Finished = rig.wait(e.Finished, seq=seq)
    return found


def blamed(rig: Rig, seq: int) -> Blame:
    blame = ended(rig, seq).blame
    assert blame is not None
    return blame


def save(rig: Rig, look: Any, array: Any, step: int) -> None:
    """Save from beginning to end, as core orders it: gangs that read an irregular gang come after its end."""
    plan, asked = saving(rig, look), request(rig, step)
    seq, tokens = rig.launch(plan, 0, [asked, rig.received(layout(look), array)])
    assert ended(rig, seq) == e.Finished(seq, None, (1,))
    seq, done = rig.launch(plan, 1, [asked, *tokens])
    assert ended(rig, seq) == e.Finished(seq, None, (1,))
    assert rig.array(done[0], layout(TOKEN)) == [step]


def restore(rig: Rig, look: Any, step: int) -> Any:
    plan = restoring(rig, look)
    seq, tokens = rig.launch(plan, 0, [request(rig, step)])
    assert ended(rig, seq) == e.Finished(seq, None, (1,))
    seq, made = rig.launch(plan, 1, list(tokens))
    assert ended(rig, seq).blame is None
    return rig.array(made[0], layout(look))


# --- saved arrays can be read again -------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", LOOKS)
@pytest.mark.parametrize("saved", LOOKS)
def test_an_array_is_restored_as_it_was_saved_in_any_layout(rig: Rig, saved: str, wanted: str) -> None:
    step = list(LOOKS).index(saved) * 3 + list(LOOKS).index(wanted)
    array = ARRAY + step
    save(rig, LOOKS[saved], array, step)
    np.testing.assert_array_equal(restore(rig, LOOKS[wanted], step), array)


TYPES = ["key<fry>", "bfloat16", "bool", "complex64", "int64"]


@pytest.mark.parametrize("dtype", TYPES)
def test_arrays_of_every_type_can_be_saved(rig: Rig, dtype: str) -> None:
    look = value((8,), ("x",), dtype)
    raw = np.arange(8 * shard_io.numpy_dtype(dtype).itemsize, dtype=np.uint8) % (2 if dtype == "bool" else 100)
    array = raw.view(shard_io.numpy_dtype(dtype))
    step = 20 + TYPES.index(dtype)
    save(rig, look, array, step)
    assert restore(rig, look, step).tobytes() == array.tobytes()


def test_a_second_save_of_a_step_is_refused_unless_it_may_overwrite(rig: Rig) -> None:
    save(rig, ROWS, ARRAY, 40)
    plan, array = saving(rig, ROWS), rig.received(layout(ROWS), -ARRAY)
    seq, _ = rig.launch(plan, 0, [request(rig, 40, nonce=1), array])
    blame = blamed(rig, seq)
    assert (blame.code, "step 40 exists already" in blame.cause) == ("checkpoint", True)
    asked = request(rig, 40, nonce=2, overwrite=True)
    seq, tokens = rig.launch(plan, 0, [asked, array])
    assert ended(rig, seq).blame is None
    seq, _ = rig.launch(plan, 1, [asked, *tokens])
    assert ended(rig, seq).blame is None
    np.testing.assert_array_equal(restore(rig, ROWS, 40), -ARRAY)


def test_the_same_save_may_be_requested_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, when a run is called again because its end was not received."""
    save(rig, ROWS, ARRAY, 41)
    monkeypatch.setattr(zarrs, "write", lambda *args, **kwargs: pytest.fail("it is there already"))
    save(rig, ROWS, ARRAY, 41)
    np.testing.assert_array_equal(restore(rig, ROWS, 41), ARRAY)


def test_the_latest_checkpoint_is_the_last_complete_one(rig: Rig, folder: Path) -> None:
    save(rig, ROWS, ARRAY, 50)
    (folder / "run" / "90.partial-0123456789abcdef").mkdir()
    (folder / "run" / "91").mkdir()  # a number, with nothing in it
    work = Work(MESH, REQUEST)
    document = documents.encode(Document("latest"))
    work.call("latest", None, [Arg(0)], [REQUEST], [TOKEN], exported=document, irregular=True)
    plan = rig.ready(work, Out(0), ident=next(_idents))
    for name, wanted in (("run", 51), ("elsewhere", 0)):
        seq, made = rig.launch(plan, 0, [request(rig, 0, name)])
        assert ended(rig, seq).blame is None
        assert rig.array(made[0], layout(TOKEN)) == [wanted]


# --- other gangs are not delayed ----------------------------------------------------------------------------------


class Gate:
    """Replaces a function by one that takes as long as the test wants."""

    def __init__(self, behind: Any) -> None:
        self._behind = behind
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.reached.set()
        assert self.open.wait(PATIENCE)
        return self._behind(*args, **kwargs)


def test_other_gangs_run_and_end_while_a_disk_is_slow(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(zarrs.write)
    monkeypatch.setattr(zarrs, "write", gate)
    plan, adds = saving(rig, ROWS), rig.ready(adding(donate=(0,)), Out(0), ident=next(_idents))
    x = rig.received(layout(ROWS), ARRAY)
    seq, _ = rig.launch(plan, 0, [request(rig, 60), x])
    assert gate.reached.wait(PATIENCE)
    behind, made = rig.launch(adds, 0, [x])  # takes over the array that is being saved and has been copied
    assert ended(rig, behind).blame is None
    np.testing.assert_array_equal(rig.array(made[0], layout(ROWS)), ARRAY + ARRAY.sum())
    assert not [event for event in rig.seen if event == e.Finished(seq)]
    gate.open.set()
    assert ended(rig, seq).blame is None


def test_an_array_that_is_donated_during_its_save_is_saved_as_it_was(
    rig: Rig, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(rig.devices._checkpoints._pieces)
    monkeypatch.setattr(rig.devices._checkpoints, "_pieces", gate)
    plan, adds = saving(rig, ROWS), rig.ready(adding(donate=(0,)), Out(0), ident=next(_idents))
    x, asked = rig.received(layout(ROWS), ARRAY), request(rig, 61)
    seq, tokens = rig.launch(plan, 0, [asked, x])
    assert gate.reached.wait(PATIENCE)
    behind, made = rig.launch(adds, 0, [x])  # nothing is copied yet, so the gang gets new memory
    assert ended(rig, behind).blame is None
    gate.open.set()
    assert ended(rig, seq).blame is None
    seq, _ = rig.launch(plan, 1, [asked, *tokens])
    assert ended(rig, seq).blame is None
    np.testing.assert_array_equal(restore(rig, ROWS, 61), ARRAY)
    np.testing.assert_array_equal(rig.array(made[0], layout(ROWS)), ARRAY + ARRAY.sum())


def test_without_memory_for_both_the_gang_waits_for_the_copy(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    saves = rig.devices._checkpoints
    gate = Gate(saves._pieces)
    monkeypatch.setattr(saves, "_pieces", gate)
    monkeypatch.setattr(saves, "_memory", 1)
    plan, adds = saving(rig, ROWS), rig.ready(adding(donate=(0,)), Out(0), ident=next(_idents))
    x = rig.received(layout(ROWS), ARRAY)
    seq, _ = rig.launch(plan, 0, [request(rig, 62), x])
    assert gate.reached.wait(PATIENCE)
    asked, tried = threading.Event(), saves._completions.given_up

    def given_up(each: int) -> bool:
        if threading.current_thread().name == "enqueue" and each != seq:
            asked.set()
        return tried(each)

    rig.settle()
    monkeypatch.setattr(saves._completions, "given_up", given_up)
    behind, made = rig.launch(adds, 0, [x])
    assert asked.wait(PATIENCE)  # it waits
    assert not [event for event in rig.seen if isinstance(event, e.Finished) and event.seq == behind]
    gate.open.set()
    assert ended(rig, seq).blame is None
    assert ended(rig, behind).blame is None
    np.testing.assert_array_equal(rig.array(made[0], layout(ROWS)), ARRAY + ARRAY.sum())
    assert not saves._held
    assert saves._bytes == 0


def test_an_abandoned_save_is_not_reported(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "is_there", lambda array: False)
    plan = saving(rig, ROWS)
    seq, _ = rig.launch(plan, 0, [request(rig, 63), rig.received(layout(ROWS), ARRAY)])
    rig.settle()
    assert len(rig.devices._checkpoints) == 1
    rig.devices.abandon([seq])
    assert len(rig.devices._checkpoints) == 0
    assert not rig.devices._checkpoints.leave()  # and it releases its arrays
    rig.settle()
    assert not [event for event in rig.seen if isinstance(event, e.Finished) and event.seq == seq]


def test_a_save_that_is_not_copied_when_its_world_ends_is_lost(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "is_there", lambda array: False)
    seq, _ = rig.launch(saving(rig, ROWS), 0, [request(rig, 64), rig.received(layout(ROWS), ARRAY)])
    rig.settle()
    assert not rig.devices._checkpoints.leave()
    blame = blamed(rig, seq)
    assert (blame.code, blame.cause) == ("lost", "its world ended before it was saved")


# --- errors -------------------------------------------------------------------------------------------------------


def test_a_save_that_fails_says_why_and_leaves_nothing(rig: Rig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, *args: Any, **kwargs: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        raise documents.CheckpointError(f"checkpoint {folder}: No space left on device")

    monkeypatch.setattr(zarrs, "write", full)
    seq, _ = rig.launch(saving(rig, ROWS), 0, [request(rig, 70), rig.received(layout(ROWS), ARRAY)])
    where = folders.partial(folder / "run", Request("", 70, f"{70:016x}"))
    assert blamed(rig, seq) == Blame("checkpoint", f"checkpoint {where}: No space left on device")
    assert not list((folder / "run").glob("70*"))


def test_an_array_that_was_never_made_is_not_saved(rig: Rig, folder: Path) -> None:
    plan, asked = saving(rig, ROWS), request(rig, 71)
    seq, _ = rig.launch(plan, 0, [asked, rig.received(layout(ROWS), ARRAY)], placeholders=True)
    assert ended(rig, seq).blame is not None
    nothing = rig.buffer()
    rig.devices.make(e.MakeBuffer(nothing, layout(ROWS), None, ()))
    rig.devices.spoil(nothing, "its maker failed")
    seq, _ = rig.launch(plan, 0, [asked, nothing])
    assert blamed(rig, seq).cause == "its maker failed"
    assert not list((folder / "run").glob("71*"))


def test_a_restore_names_what_is_missing(rig: Rig, folder: Path) -> None:
    save(rig, ROWS, ARRAY, 81)
    (folder / "run" / "82.partial-00000000000000ff").mkdir()
    other = value((4, 4), ("x", ""))
    for look, step, said in (
        (ROWS, 83, "there is no step 83; complete:"),
        (ROWS, 82, "step 82 is not complete: its save has not finished (82.partial-"),
        (other, 81, "array 'x' was saved as float32[8,4], but is requested as float32[4,4]"),
    ):
        seq, _ = rig.launch(restoring(rig, look), 0, [request(rig, step)])
        blame = blamed(rig, seq)
        assert said in blame.cause
        assert str(folder / "run") in blame.cause


def test_documents_that_do_not_fit_the_plan_are_refused(rig: Rig) -> None:
    for exported, said in (
        (Document("save", MESH, (entry(WHOLE),)), "has another sharding than the document says"),
        (Document("save", MESH, ()), "'save' of 0 arrays does not take"),
        (Document("save", MESH, (entry(ROWS, "../x"),)), "cannot be the name of an array"),
        (Document("load", MESH, (entry(ROWS),)), "'load' of 1 arrays does not take"),
    ):
        work = Work(MESH, REQUEST, ROWS)
        blob = documents.encode(exported)
        work.call("save", None, [Arg(0), Arg(1)], [REQUEST, ROWS], [TOKEN], exported=blob, irregular=True)
        (ready,) = rig.compile(work.plan(HERE, Out(0), ident=next(_idents)), work.blobs)
        assert ready.blame is not None
        assert said in ready.blame.cause


def test_a_host_without_a_folder_says_how_to_configure_one(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.devices._checkpoints, "_root", None)
    assert isinstance(rig.devices._checkpoints, Checkpoints)
    seq, _ = rig.launch(saving(rig, ROWS), 0, [request(rig, 84), rig.received(layout(ROWS), ARRAY)])
    assert "start its agent with --checkpoints DIR" in blamed(rig, seq).cause


def test_a_host_whose_folder_another_host_removed_leaves_the_reason_to_that_host(
    rig: Rig, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder vanishes while the host writes. A host whose own disk is full reports that itself, as
    `checkpoint`."""
    plan, asked = saving(rig, ROWS), request(rig, 71)
    partial = folders.partial(folder / "run", Request("run", 71, f"{71:016x}"))
    write_chunk = files.write_chunk

    def removed(*args: Any) -> None:
        shutil.rmtree(partial, ignore_errors=True)
        write_chunk(*args)

    monkeypatch.setattr(files, "write_chunk", removed)
    seq, _ = rig.launch(plan, 0, [asked, rig.received(layout(ROWS), ARRAY)])
    blame = blamed(rig, seq)
    assert (blame.code, str(partial) in blame.cause) == ("discarded", True)
