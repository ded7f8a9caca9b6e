"""JAX's own tests, through the door: `JAX_TESTS=FOLDER python -m tests.backend.door.jax_suite`, or `make jax-tests`.

FOLDER has JAX's files `*_test.py` of the installed version, or folders of such files, named after versions. `plugin`
runs in the process of a file's tests and writes each result at once. `files` starts such processes, ends a test that
takes too long, and goes on with a new door when one has ended. `outcomes` judges: a test must pass through the door if
it passes on local devices, but for those in `expected_failures.toml`, where each has its reason.
"""
