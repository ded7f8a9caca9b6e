"""Which foreign functions the code of an untrusted client may call, by their names in StableHLO.

JAX has a list of such names on which exported code may rely; that list is about compatibility, not about safety. This
module allows those that only compute on their arguments. `WITHHELD` has the others, and the reasons; an agent's
`--allow-custom-call NAME` allows one of them. `CALLBACKS` run Python, or whatever is at an address in the code: no
option allows them, and only those that name a function by a number pass, for a client that answers them. This module
does not import JAX. Neighbour: `inspection`.
"""

import re
from collections.abc import Collection

# Annotations of shardings and layouts; they compute nothing.
SHARDINGS = (
    "LayoutConstraint",
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement",
    "xla.sdy.FuncResultSharding", "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape",
    "xla.sdy.ShardingGroup", "xla.sdy.PropagationBarrier",
)  # fmt: skip

# Operations that StableHLO does not have yet.
OPERATIONS = (
    "ApproxTopK", "stablehlo.dynamic_approx_top_k", "stablehlo.dynamic_top_k", "stablehlo.dynamic_reduce_window",
    "stablehlo.dynamic_rng_bit_generator", "shape_assertion",
)  # fmt: skip

RANDOM = ("cu_threefry2x32_ffi", "hip_threefry2x32_ffi")


def _lapack() -> tuple[str, ...]:
    """Functions for single and double precision, real and complex numbers."""
    all_four = (
        "potrf", "geqrf", "geqp3", "geev", "gesdd", "gesvd", "getrf", "gehrd", "gees", "trsm", "gtsv"
    )  # fmt: skip
    real, of_complex = ("orgqr", "ormqr", "syevd", "sytrd"), ("ungqr", "unmqr", "heevd", "hetrd")
    names = [*(kind + name for name in all_four for kind in "sdcz")]
    names += [kind + name for name in real for kind in "sd"]
    names += [kind + name for name in of_complex for kind in "cz"]
    return tuple(f"lapack_{name}_ffi" for name in names)


# Linear algebra: on CPUs, on GPUs (as JAX lowers it for them), on TPUs.
ALGEBRA = (
    *_lapack(), "tridiagonal_solve_perturbed_ffi",
    *(
        f"{maker}{name}"
        for maker in ("cu", "hip")
        for name in (
            "_lu_pivots_to_permutation", "_cholesky_update_ffi", "_tridiagonal_solve_perturbed", "sparse_gtsv2_ffi",
            "hybrid_eig_real", "hybrid_eig_comp", "hybrid_geqp3",
        )
    ),
    *(
        f"{maker}solver_{name}_ffi"
        for maker in ("cu", "hip")
        for name in (
            "getrf", "geqrf", "orgqr", "ormqr", "potrf", "syevd", "geev", "gesdd", "gesvd", "gesvdj", "gesvdp", "sytrd",
            "syrk",
        )
    ),
    "Eigh", "Qr", "ProductOfElementaryHouseholderReflectors", "LuDecomposition",
)  # fmt: skip

ALLOWED = frozenset((*SHARDINGS, *OPERATIONS, *RANDOM, *ALGEBRA))

UNCHECKED = "it reads and writes where its arguments' indices say, which it does not check (jax.experimental.sparse)"
SPARSE = (
    "cpu_csr_sparse_dense_ffi",
    *(
        f"{maker}sparse_{name}_ffi"
        for maker in ("cu", "hip")
        for name in (
            "coo_fromdense", "coo_matmat", "coo_matvec", "coo_todense", "csr_fromdense", "csr_matmat", "csr_matvec",
            "csr_todense",
        )
    ),
)  # fmt: skip

WITHHELD = {
    **dict.fromkeys(SPARSE, UNCHECKED),
    "AllocateBuffer": "it gives memory as others have left it (jnp.empty, lax.empty: write jnp.zeros)",
    "tpu_custom_call": "it is a kernel of the client's own, which may touch any memory of a device (Pallas)",
    "mosaic_gpu_v2": "it is a kernel of the client's own, which may touch any memory of a device (Pallas)",
    "tf.call_tf_function": "it runs TensorFlow in the agent",
}

CALLBACKS = re.compile(r"callback|python|CustomSPMDPartitioning|InspectSharding", re.IGNORECASE)


def is_callback(name: str) -> bool:
    """Whether no option may allow it."""
    return CALLBACKS.search(name) is not None


def objection(name: str, more: Collection[str], answered: Collection[str] = ()) -> str:
    """Why code may not call this; "" if it may. `more`: names that the agent's operator allows. `answered`: names that
    call functions of the client's process, over a stream that its client has opened for that."""
    if is_callback(name) and name not in answered:
        return (
            f"it calls back into Python ({name!r}): the function would be an address of another process's memory, and "
            "following one is never allowed"
        )
    if name in ALLOWED or name in more or name in answered:
        return ""
    why = WITHHELD.get(name)
    return (
        f"it calls {name!r}, which is not on the list of foreign functions that clients may call"
        f"{': ' + why if why else ''}; the agents' operator can allow it with --allow-custom-call {_quoted(name)}"
    )


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.$]+", name) else repr(name)
