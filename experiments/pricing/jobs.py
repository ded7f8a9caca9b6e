"""Which computations a way of training consists of, each with the slice that it is compiled for."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

from ..models import decoder, islands, pipeline, spmd
from ..models.computation import Computation
from ..models.decoder import Part
from ..models.meshes import abstract
from ..models.shapes import MODELS, T5, Decoder, Model

HBM = 16 << 30  # bytes of a core


class Job(NamedTuple):
    """`key` says all that the computation depends on."""

    key: str
    topology: str
    split: int  # cores to a matrix
    build: Callable[[], Computation]


def topology(cores: int) -> str:
    """Of a TPU v3, two cores a chip: chips as near to a square as they come."""
    if cores < 2 or cores % 2:
        raise ValueError(f"a TPU v3 slice has an even number of cores, not {cores}")
    short, long = torus(cores)
    return f"v3:{short}x{long}"


def torus(cores: int) -> tuple[int, int]:
    """In chips."""
    chips = cores // 2
    short = next(side for side in range(isqrt(chips), 0, -1) if chips % side == 0)
    return short, chips // short


def model_axis(model: Model, cores: int) -> int:
    """Over how many cores a matrix is split where nobody says: over one where a replica's state (float32 weights and
    gradients, and the bfloat16 copy) takes half of a core's memory at most; else over as many as the slice has chips
    along its shorter side, so that the mesh has the shape of the torus."""
    return 1 if 10 * model.parameters <= HBM / 2 else torus(cores)[0]


def axes(cores: int, model: int) -> dict[str, int]:
    if model < 1 or cores % model:
        raise ValueError(f"{cores} cores do not divide into groups of {model}")
    return {"data": cores // model, "model": model} if model > 1 else {"data": cores}


def _key(name: str, mesh: dict[str, int], **of: int) -> str:
    return f"{name}; " + ", ".join(f"{key} {value}" for key, value in (mesh | of).items())


def step(model: str, cores: int, batch: int, length: int, split: int = 0) -> Job:
    """A decoder's whole step. `split`: cores to a matrix; 0: as `model_axis` has it."""
    shape = MODELS[model]
    assert isinstance(shape, Decoder)
    mesh = axes(cores, split or model_axis(shape, cores))
    key = _key(f"{model}/step", mesh, batch=batch, length=length)
    return Job(
        key, topology(cores), mesh.get("model", 1), lambda: spmd.step(shape, abstract(mesh), batch, length)
    )


def t5_step(model: str, cores: int, batch: int, length: int, targets: int, split: int = 0) -> Job:
    shape = MODELS[model]
    assert isinstance(shape, T5)
    mesh = axes(cores, split or model_axis(shape, cores))
    key = _key(f"{model}/step", mesh, batch=batch, length=length, targets=targets)
    return Job(
        key,
        topology(cores),
        mesh.get("model", 1),
        lambda: spmd.t5_step(shape, abstract(mesh), batch, length, targets),
    )


class Costed(NamedTuple):
    """Jobs of one part of a model."""

    part: Part
    forward: Job
    backward: Job
    update: Job

    @property
    def jobs(self) -> tuple[Job, Job, Job]:
        return self.forward, self.backward, self.update


def stages(model: str, cores: int, count: int, batch: int, length: int) -> list[Costed]:
    """`cores`: of one stage; `batch`: sequences of a micro-batch. Nothing that is priced depends on the scale of
    the loss, so it is one."""
    shape = MODELS[model]
    assert isinstance(shape, Decoder)
    mesh, where = axes(cores, 1), topology(cores)

    @lru_cache
    def built(part: Part) -> pipeline.Stage:
        return pipeline.stage(part, abstract(mesh), batch, length, scale=1.0)

    def costed(part: Part) -> Costed:
        def job(kind: str, **of: int) -> Job:
            name = f"{part.name}/{kind}"
            return Job(
                _key(name, mesh, **of), where, mesh.get("model", 1), lambda: getattr(built(part), kind)
            )

        sized = {"batch": batch, "length": length}
        return Costed(part, job("forward", **sized), job("backward", **sized), job("update"))

    return [costed(part) for part in decoder.stages(shape, count)]


def segments(
    model: str, cores: int, count: int, batch: int, length: int, shares: int, split: int = 0
) -> list[Costed]:
    """`cores` and `batch`: of one island; `shares`: islands whose gradients are applied."""
    shape = MODELS[model]
    assert isinstance(shape, Decoder)
    mesh, where = axes(cores, split or model_axis(shape, cores)), topology(cores)

    @lru_cache
    def built(part: Part) -> islands.Segment:
        return islands.segment(part, abstract(mesh), batch, length, scale=1.0, islands=shares)

    def costed(part: Part) -> Costed:
        def job(kind: str, **of: int) -> Job:
            name = f"{part.name}/{kind}"
            return Job(
                _key(name, mesh, **of), where, mesh.get("model", 1), lambda: getattr(built(part), kind)
            )

        sized = {"batch": batch, "length": length}
        return Costed(
            part, job("forward", **sized), job("backward", **sized, segment=1), job("update", islands=shares)
        )

    return [costed(part) for part in decoder.stages(shape, count)]
