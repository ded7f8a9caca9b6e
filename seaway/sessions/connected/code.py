"""A computation as code that hosts can run: StableHLO, exported for devices that this process does not have.

What travels is `jax.export`'s own format, never a pickle. It is found by its hash wherever it goes.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any, NamedTuple

from ...graph import Signature
from ...specs import WHOLE, partition_spec, trees


class Code(NamedTuple):
    name: str  # sha256 of the blob
    blob: bytes


@lru_cache(maxsize=64)  # a session asks once; another session soon after may ask for the same
def code_of(signature: Signature, platforms: tuple[str, ...]) -> Code:
    """For all of these platforms in one. An irregular one's has one result more, the count of rows that are meant.
    What exporting raises has a note that says which computation it was."""
    if signature.document:
        return Code(hashlib.sha256(signature.document).hexdigest(), signature.document)
    if signature.function is None:
        raise TypeError(
            f"{signature.name!r} is only its cost, with nothing to compute, so no {' or '.join(platforms)} device can "
            f"run it; write it with sw.jit, or run it in sw.simulate or on devices of kind 'timed'"
        )
    from jax import export

    _leave_devices_alone()
    try:
        exported = export.export(_jitted(signature), platforms=platforms)(*_arguments(signature))
        blob = bytes(exported.serialize())
    except Exception as error:
        told = _better(signature, error)
        told.add_note(
            f"while computation {signature.name!r} on {signature.slice!r} was exported for {', '.join(platforms)}"
        )
        if told is error:
            raise
        raise told from None
    return Code(hashlib.sha256(blob).hexdigest(), blob)


def _better(signature: Signature, error: Exception) -> Exception:
    """Of functions that call back into Python, JAX says what it lacks, and not what the user wrote."""
    import jax

    function: Any = signature.function
    text = str(jax.make_jaxpr(function)(*(leaf.abstract() for leaf in signature.inputs)))
    found = sorted(set(re.findall(r"\b(?:pure|io|debug)_callback\b|\bdebug_print\b", text)))
    if not found:
        return error
    return NotImplementedError(
        f"{signature.name!r} calls back into Python ({', '.join(found)}), and other processes do not have this one's "
        f"functions: return what you want to see or to change here, and read it between two calls"
    )


def _leave_devices_alone() -> None:
    """Lowering looks for a device of this process, any one: not an accelerator, which is its agent's, unless the user
    says which platforms JAX is to use here, or has used one before."""
    import jax

    config: Any = jax.config
    if not config.jax_platforms:
        config.update("jax_platforms", "cpu")


def _jitted(signature: Signature) -> Any:
    """Of leaves, to leaves: trees are the client's own affair."""
    import jax

    function = signature.function

    def leaves_of(*leaves: Any) -> list[Any]:
        assert function is not None
        return trees.leaves(function(*leaves))

    leaves_of.__name__ = signature.name  # what profilers and compilers call it
    outs = [_named(signature, each) for each in signature.out_shardings]
    if signature.irregular:
        outs.append(_named(signature, WHOLE))  # the count
    return jax.jit(leaves_of, out_shardings=outs)


def _arguments(signature: Signature) -> list[Any]:
    import jax

    from ...specs import jax_dtype

    made: Any = jax.ShapeDtypeStruct
    return [
        made(leaf.shape, jax_dtype(leaf.dtype), weak_type=leaf.weak, sharding=_named(signature, sharding))
        for leaf, sharding in zip(signature.inputs, signature.expects, strict=True)
    ]


def _named(signature: Signature, sharding: Any) -> Any:
    from jax.sharding import NamedSharding

    home = signature.slice
    return NamedSharding(home.mesh, partition_spec(sharding, home.axis_names))
