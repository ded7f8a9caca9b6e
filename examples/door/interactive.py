# What a person types into a Python session, line by line:  python -i < examples/door/interactive.py
import jax
import jax.numpy as jnp
import numpy as np

len(jax.devices())
x = jnp.arange(8.0)
x
x * 2 + 1
x.reshape(2, 4) @ x.reshape(4, 2)
f = jax.jit(lambda x: jnp.sin(x).sum())
f(x)
jax.grad(f)(x)
mesh = jax.make_mesh((len(jax.devices()),), ("x",))
y = jax.device_put(x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))
y.sharding.spec
y.addressable_shards[3].data
jax.jit(lambda y: y + y.sum())(y)
x @ jnp.ones(3)
x.sum()
key = jax.random.key(7)
jax.random.uniform(key, (3,))
for step in range(3):
    y = y / 2
    print(step, float(y.max()))

y.delete()
y + 1
np.asarray(x).tolist()
jax.eval_shape(f, x)
