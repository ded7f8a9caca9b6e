"""One small program for each of many libraries with which people write JAX programs.

Run as `python -m tests.backend.door.libraries.programs NAME`, one of them prints its results, and then its seconds.
"""

# mypy: ignore-errors

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PROGRAMS: dict[str, Callable[[Any], Any]] = {}
PACKAGES = {
    "dm_pix": "dm-pix", "e3nn_jax": "e3nn-jax", "haiku": "dm-haiku", "jax_md": "jax-md", "jax_tqdm": "jax-tqdm",
    "orbax": "orbax-checkpoint", "ott": "ott-jax",
}  # fmt: skip
KEY = jax.random.PRNGKey
X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[function.__name__] = function
    PACKAGES.setdefault(function.__name__, function.__name__)
    return function


# --- with functions of the program's process -------------------------------------------------------------------------


@program
def diffrax(d: Any) -> Any:
    term = d.ODETerm(lambda t, y, args: -y)
    control = d.PIDController(rtol=1e-5, atol=1e-5)
    at = d.SaveAt(ts=jnp.linspace(0, 3, 4))
    found = d.diffeqsolve(
        term, d.Dopri5(), 0.0, 3.0, 0.1, jnp.array([1.0, 2.0]), stepsize_controller=control, saveat=at
    )
    try:
        d.diffeqsolve(term, d.Dopri5(), 0.0, 3.0, 0.1, jnp.array([1.0, 2.0]), max_steps=2)
    except Exception as error:
        return found.ys, type(error).__name__
    return found.ys


@program
def optimistix(o: Any) -> Any:
    solver = o.Newton(rtol=1e-6, atol=1e-6)
    return o.root_find(lambda y, a: jnp.tanh(y) - a * y + 0.1, solver, jnp.array(0.5), 0.5).value


@program
def lineax(lx: Any) -> Any:
    matrix = lx.MatrixLinearOperator(jnp.array([[2.0, 1.0], [1.0, 3.0]]))
    return lx.linear_solve(matrix, jnp.array([1.0, 2.0])).value


@program
def equinox(eqx: Any) -> Any:
    @eqx.filter_jit
    def checked(x: Any) -> Any:
        return eqx.error_if(x, x < 0, "x must be positive") + 1

    said = ""
    try:
        checked(jnp.float32(-1)).block_until_ready()
    except Exception as error:
        said = str(error)
    model = eqx.nn.MLP(4, 2, 8, 2, key=KEY(0))
    return str("x must be positive" in said), checked(jnp.float32(1)), eqx.filter_jit(jax.vmap(model))(X)


@program
def jax_tqdm(t: Any) -> Any:
    @t.scan_tqdm(20)
    def step(carry: Any, i: Any) -> Any:
        return carry + i, carry

    return jax.jit(lambda c: jax.lax.scan(step, c, jnp.arange(20)))(0)


@program
def flowjax(f: Any) -> Any:
    flows, distributions = importlib.import_module("flowjax.flows"), importlib.import_module("flowjax.distributions")
    base = distributions.Normal(jnp.zeros(2))
    flow = flows.masked_autoregressive_flow(jax.random.key(0), base_dist=base, flow_layers=2)
    return flow.log_prob(jnp.ones((3, 2)))


# --- networks and optimizers ----------------------------------------------------------------------------------------


@program
def flax(f: Any) -> Any:
    linen = importlib.import_module("flax.linen")
    model = linen.Sequential([linen.Dense(8), linen.relu, linen.LayerNorm(), linen.Dense(2)])
    return jax.jit(model.apply)(model.init(KEY(0), X), X)


@program
def haiku(hk: Any) -> Any:
    net = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([8, 2])(x)))
    weights = net.init(KEY(0), X)
    return jax.jit(jax.value_and_grad(lambda w: jnp.mean(net.apply(w, X) ** 2)))(weights)


@program
def keras(k: Any) -> Any:
    k.utils.set_random_seed(0)
    model = k.Sequential([k.layers.Input((4,)), k.layers.Dense(8, activation="relu"), k.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    return model.fit(X, X.sum(1, keepdims=True), epochs=2, batch_size=4, shuffle=False, verbose=0).history["loss"]


@program
def optax(o: Any) -> Any:
    weights, chain = jnp.ones(4), o.chain(o.clip_by_global_norm(1.0), o.adamw(1e-2))
    state = chain.init(weights)

    @jax.jit
    def step(weights: Any, state: Any) -> Any:
        loss, slope = jax.value_and_grad(lambda w: jnp.mean((X @ w - 1) ** 2))(weights)
        changes, state = chain.update(slope, state, weights)
        return o.apply_updates(weights, changes), state, loss

    for _ in range(5):
        weights, state, loss = step(weights, state)
    return weights, loss


@program
def jaxopt(j: Any) -> Any:
    solver = j.GradientDescent(fun=lambda w: jnp.sum((X @ w - 1) ** 2), maxiter=20, stepsize=0.01)
    return solver.run(jnp.zeros(4)).params


@program
def evosax(e: Any) -> Any:
    algorithm = importlib.import_module("evosax.algorithms").CMA_ES(population_size=8, solution=jnp.zeros(3))
    state, params = algorithm.init(KEY(0), jnp.zeros(3), algorithm.default_params), algorithm.default_params
    for each in range(3):
        population, state = algorithm.ask(KEY(each), state, params)
        state, _ = algorithm.tell(KEY(each), population, jnp.sum(population**2, axis=1), state, params)
    return state.best_fitness


# --- inference, transport, geometry, graphs, search -----------------------------------------------------------------


@program
def numpyro(n: Any) -> Any:
    infer, dist = importlib.import_module("numpyro.infer"), importlib.import_module("numpyro.distributions")

    def model(y: Any) -> None:
        n.sample("y", dist.Normal(n.sample("mu", dist.Normal(0, 1)), 1), obs=y)

    found = infer.MCMC(infer.NUTS(model), num_warmup=10, num_samples=10, progress_bar=False)
    found.run(KEY(0), jnp.asarray(X.ravel()))
    return found.get_samples()["mu"]


@program
def blackjax(b: Any) -> Any:
    nuts = b.nuts(lambda x: -jnp.sum(x**2), 0.1, jnp.ones(2))
    state = nuts.init(jnp.ones(2))
    for each in range(5):
        state, _ = jax.jit(nuts.step)(KEY(each), state)
    return state.position


@program
def gpjax(g: Any) -> Any:
    return g.kernels.RBF()(X[0], X[1])


@program
def ott(o: Any) -> Any:
    clouds, linear = importlib.import_module("ott.geometry.pointcloud"), importlib.import_module("ott.solvers.linear")
    return jax.jit(lambda x, y: linear.solve(clouds.PointCloud(x, y), max_iterations=50).reg_ot_cost)(X, X + 1)


@program
def jaxlie(j: Any) -> Any:
    turn = j.SO3.from_rpy_radians(0.1, 0.2, 0.3)
    return jax.jit(lambda x: (turn @ turn.inverse()).as_matrix() + turn.apply(x))(jnp.ones(3)), turn.log()


@program
def e3nn_jax(e: Any) -> Any:
    return jax.jit(lambda x: e.spherical_harmonics("2e", x, True).array)(jnp.array([0.3, 0.2, 0.5]))


@program
def jraph(j: Any) -> Any:
    ends = jnp.array([0, 0, 1])
    return jax.jit(lambda x: (j.segment_softmax(x[:, 0], ends, 2), j.segment_mean(x, ends, 2)))(X[:3])


@program
def mctx(m: Any) -> Any:
    def recurrent(params: Any, key: Any, action: Any, embedding: Any) -> Any:
        ones = jnp.ones(2)
        logits = jnp.zeros((2, 3))
        return m.RecurrentFnOutput(
            reward=action * ones, discount=0.9 * ones, prior_logits=logits, value=ones
        ), embedding

    root = m.RootFnOutput(prior_logits=jnp.zeros((2, 3)), value=jnp.zeros(2), embedding=jnp.zeros(2))
    search = jax.jit(lambda key: m.gumbel_muzero_policy((), key, root, recurrent, num_simulations=8))
    return search(KEY(0)).action_weights


@program
def jax_md(j: Any) -> Any:
    space, energy = importlib.import_module("jax_md.space"), importlib.import_module("jax_md.energy")
    distance, _ = space.periodic(4.0)
    return jax.jit(jax.value_and_grad(energy.soft_sphere_pair(distance)))(jax.random.uniform(KEY(0), (8, 2)) * 4)


# --- pictures, checks, checkpoints -----------------------------------------------------------------------------------


@program
def dm_pix(p: Any) -> Any:
    picture = np.linspace(0, 1, 192, dtype=np.float32).reshape(8, 8, 3)[..., ::-1]  # a view with a negative stride
    return jax.jit(lambda x: p.gaussian_blur(p.rgb_to_hsv(x), 1.0, 3))(picture)


@program
def augmax(a: Any) -> Any:
    turned = a.Chain(a.HorizontalFlip(), a.Rotate())
    return jax.jit(turned)(KEY(0), np.linspace(0, 1, 192, dtype=np.float32).reshape(8, 8, 3))


@program
def chex(c: Any) -> Any:
    @jax.jit
    def checked(x: Any) -> Any:
        c.assert_shape(x, (8, 4))
        return x @ x.T

    c.assert_tree_all_finite(checked(X))
    return checked(X)


@program
def orbax(o: Any) -> Any:
    import tempfile

    checkpoint = importlib.import_module("orbax.checkpoint")
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    there = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    tree = {"w": jax.device_put(X, there)}
    with tempfile.TemporaryDirectory() as folder, checkpoint.StandardCheckpointer() as keeper:
        keeper.save(f"{folder}/state", tree)
        keeper.wait_until_finished()
        return keeper.restore(f"{folder}/state", jax.tree.map(jnp.zeros_like, tree))


if __name__ == "__main__":
    os.environ.setdefault("KERAS_BACKEND", "jax")
    library = importlib.import_module(sys.argv[1])
    jax.block_until_ready(jnp.ones(1))
    begun = time.monotonic()
    for leaf in jax.tree.leaves(PROGRAMS[sys.argv[1]](library)):
        print(leaf if isinstance(leaf, str) else np.asarray(leaf).tolist())
    print(f"{time.monotonic() - begun:.2f}")
