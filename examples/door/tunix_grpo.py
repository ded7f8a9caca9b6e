"""Tunix trains a toy transformer by GRPO: the actor learns on half of the devices, the rollout writes on the others.

python examples/door/tunix_grpo.py [STEPS [FOLDER]]

After each step the actor's weights go to the rollout's devices, where they are cut otherwise. FOLDER is that of its
checkpoints: a program that is started again goes on from the last step there. It needs Tunix:

pip install --no-deps google-tunix
pip install pathwaysutils flax optax orbax-checkpoint qwix grain google-metrax jaxtyping perfetto sentencepiece \\
    safetensors tenacity jinja2 omegaconf transformers pylatexenc sympy kagglehub einops
"""

import logging
import os
import sys

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import Mesh

if "proxy" in os.environ.get("JAX_PLATFORMS", ""):
    import pathwaysutils

    pathwaysutils.initialize()

from tunix.rl import rl_cluster
from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner
from tunix.rl.rollout.base_rollout import RolloutConfig
from tunix.tests.test_common import MockVocab, ModelConfig, ToyTransformer

PROMPTS = np.array(["input string", "hello world", "My name", "hello there"])
GENERATIONS = 4


def reward(completions, **about):
    """The later of a prompt's completions are the better ones."""
    print("rollout", len(completions), flush=True)
    return np.arange(len(completions), dtype=np.float32)


def roles(steps, folder):
    devices = np.array(jax.devices())
    half = len(devices) // 2
    actor = Mesh(devices[:half].reshape(half, 1), ("fsdp", "tp"))
    rollout = Mesh(devices[half:].reshape(1, half), ("fsdp", "tp"))
    role = rl_cluster.Role
    return rl_cluster.ClusterConfig(
        role_to_mesh={role.ACTOR: actor, role.REFERENCE: actor, role.ROLLOUT: rollout},
        rollout_engine="vanilla",
        offload_to_cpu=False,
        training_config=rl_cluster.RLTrainingConfig(
            actor_optimizer=optax.adamw(1e-3), eval_every_n_steps=1000, max_steps=steps,
            mini_batch_size=len(PROMPTS), train_micro_batch_size=len(PROMPTS), checkpoint_root_directory=folder,
            checkpointing_options=ocp.CheckpointManagerOptions(
                save_interval_steps=1, max_to_keep=2, enable_async_checkpointing=False
            ),
        ),
        rollout_config=RolloutConfig(max_tokens_to_generate=8, max_prompt_length=32, kv_cache_size=128),
    )  # fmt: skip


def model(vocabulary):
    return ToyTransformer(config=ModelConfig(vocab_size=vocabulary.GetPieceSize()), rngs=nnx.Rngs(0))


def weights(model):
    return [np.asarray(each) for each in jax.tree.leaves(nnx.state(model, nnx.Param))]


def main(steps=3, folder=None):
    logging.disable(logging.WARNING)
    vocabulary = MockVocab()
    cluster = rl_cluster.RLCluster(
        actor=model(vocabulary), reference=model(vocabulary), tokenizer=vocabulary,
        cluster_config=roles(steps, folder),
    )  # fmt: skip
    learner = GRPOLearner(
        rl_cluster=cluster, reward_fns=reward,
        algo_config=GRPOConfig(num_generations=GENERATIONS, num_iterations=1),
    )  # fmt: skip
    first = cluster.actor_trainer.train_steps
    if first:  # the actor has the weights of a checkpoint
        cluster.rollout.update_params(nnx.state(cluster.actor_trainer.model, nnx.Param), nnx.Param)
    print("from step", first, flush=True)
    learner.train([{"prompts": PROMPTS, "answer": PROMPTS}] * steps)
    losses = cluster.actor_trainer.metrics_logger.get_metric_history("actor", "loss", "train")
    for step, loss in enumerate(losses, first + 1):
        print(f"step {step}  loss {float(loss):.6f}")
    learnt, synced = weights(cluster.actor_trainer.model), weights(cluster.rollout.model())
    same = all(np.array_equal(mine, others) for mine, others in zip(learnt, synced, strict=True))
    print("the rollout has the actor's weights:", same)
    print(f"their sum of squares: {sum(float(np.sum(np.square(each))) for each in learnt):.4f}", flush=True)


if __name__ == "__main__":
    main(*(each(word) for each, word in zip((int, os.path.abspath), sys.argv[1:], strict=False)))
