"""Lists the computations of each way of training, by the keys that they have in the book of costs."""

from collections.abc import Mapping
from math import isqrt
from typing import NamedTuple

from seaway.api import schedules

from .shapes import MODELS, T5, Decoder, Model, Part
from .shapes import stages as parts_of

HBM = 16 << 30  # bytes of a core


class Job(NamedTuple):
    """A computation with a price. `key` contains everything that it depends on."""

    key: str
    split: int  # cores to a matrix


def torus(cores: int) -> tuple[int, int]:
    """The sides of a TPU v3 slice in chips of two cores, as near to a square as possible, the shorter one first."""
    if cores < 2 or cores % 2:
        raise ValueError(f"a TPU v3 slice has an even number of cores, not {cores}")
    chips = cores // 2
    short = next(side for side in range(isqrt(chips), 0, -1) if chips % side == 0)
    return short, chips // short


def model_axis(model: Model, cores: int) -> int:
    """The default number of cores over which a matrix is split.

    It is 1 if a replica's state (float32 weights and gradients, and the bfloat16 copy) takes at most half of a core's
    memory. Otherwise it is the number of chips along the slice's shorter side, so that the mesh has the torus's shape.
    """
    return 1 if 10 * model.parameters <= HBM / 2 else torus(cores)[0]


def axes(cores: int, model: int) -> dict[str, int]:
    if model < 1 or cores % model:
        raise ValueError(f"{cores} cores do not divide into groups of {model}")
    return {"data": cores // model, "model": model} if model > 1 else {"data": cores}


def _job(name: str, mesh: Mapping[str, int], depends: Mapping[str, int]) -> Job:
    """`depends`: what the computation depends on beside its name and mesh."""
    key = f"{name}; " + ", ".join(f"{word} {value}" for word, value in (*mesh.items(), *depends.items()))
    return Job(key, mesh.get("model", 1))


def step(model: str, cores: int, batch: int, length: int, split: int = 0) -> Job:
    """A decoder's whole step. `split`: cores to a matrix; 0: the default of `model_axis`."""
    mesh = axes(cores, split or model_axis(_decoder(model), cores))
    return _job(f"{model}/step", mesh, {"batch": batch, "length": length})


def t5_step(model: str, cores: int, batch: int, length: int, targets: int, split: int = 0) -> Job:
    shape = MODELS[model]
    assert isinstance(shape, T5)
    mesh = axes(cores, split or model_axis(shape, cores))
    return _job(f"{model}/step", mesh, {"batch": batch, "length": length, "targets": targets})


class Costed(NamedTuple):
    """The jobs of one part of a model."""

    part: Part
    forward: Job
    backward: Job
    update: Job

    @property
    def jobs(self) -> tuple[Job, Job, Job]:
        return self.forward, self.backward, self.update


def stages(model: str, cores: int, count: int, batch: int, length: int, waiting: int) -> list[Costed]:
    """Jobs of a pipeline's stages. `cores`: of one stage. `batch`: sequences of a micro-batch. `waiting`: micro-batches
    whose forward pass is done in the last stage, and whose backward pass is not, at most. Their logits are kept where
    they fit."""
    mesh, sized = axes(cores, 1), {"batch": batch, "length": length}
    found = _parts(_decoder(model), count, mesh, forward=sized, backward=sized, update={})
    end = found[-1]
    if logits_fit(end.part, -(-batch // cores), length, waiting):
        ahead, back = (job._replace(key=job.key + KEPT) for job in (end.forward, end.backward))
        found[-1] = end._replace(forward=ahead, backward=back)
    return found


def waiting_last(schedule: str, count: int, microbatches: int) -> int:
    """The most micro-batches that wait in the last stage between their forward and their backward pass."""
    now = most = 0
    for task in schedules.SCHEDULES[schedule](count, microbatches)[-1]:
        now += 1 if task.kind == "forward" else -1
        most = max(most, now)
    return most


KEPT = ", logits kept"  # end of a key


def logits_fit(last: Part, sequences: int, length: int, waiting: int) -> bool:
    """Whether a core of the last stage has memory for the logits of all micro-batches that wait there, beside its state
    (float32 weights and gradients, and the bfloat16 copy), the inputs of its layers, and four times one micro-batch's
    logits as scratch: in bfloat16, and in float32 with their gradients. `sequences`: of a micro-batch, on a core."""
    tokens = sequences * length
    logits, layer = 2 * tokens * last.model.vocabulary, 2 * tokens * last.model.d_model
    return 10 * last.parameters + waiting * ((last.layers + 1) * layer + logits) + 4 * logits <= HBM


def segments(model: str, cores: int, count: int, batch: int, length: int, shares: int, split: int = 0) -> list[Costed]:
    """Jobs of an island's segments. `cores`, `batch`: of one island. `shares`: islands whose gradients are applied."""
    shape, sized = _decoder(model), {"batch": batch, "length": length}
    mesh = axes(cores, split or model_axis(shape, cores))
    backward, update = sized | {"segment": 1}, {"islands": shares}
    return _parts(shape, count, mesh, forward=sized, backward=backward, update=update)


def _decoder(model: str) -> Decoder:
    shape = MODELS[model]
    assert isinstance(shape, Decoder)
    return shape


def _parts(shape: Decoder, count: int, mesh: Mapping[str, int], **depends: Mapping[str, int]) -> list[Costed]:
    """Jobs of a model's parts. `depends`: what the keys of each kind contain beside the mesh."""
    return [
        Costed(part, *(_job(f"{part.name}/{kind}", mesh, more) for kind, more in depends.items()))
        for part in parts_of(shape, count)
    ]
