"""The jobs of four users in a day. It opens no session: the command that runs it names cluster and policy.

python -m seaway simulate examples/jobs.py --cluster A --policy in_turn
python -m seaway simulate examples/jobs.py --cluster A --policy examples/policies/tiresias.py:Tiresias
python -m seaway sweep examples/jobs.py --cluster A --policy in_turn,first_fit --set load=0.5,1 --seeds 10
"""

import seaway as sw


def measure(seed=1, load=1.0):
    jobs = sw.workload.poisson_jobs(
        5 * load, "24h", seed=seed, users=["ann", "bob", "cat", "dan"], devices={64: 6, 512: 3, 1536: 1},
        duration=("5min", "8h"), step="10s",
    )  # fmt: skip
    return jobs.play()


if __name__ == "__main__":
    row = measure().summary().iloc[0]
    took, waited = row["jct_mean_s"] / 3600, row["waited_mean_s"] / 3600
    print(f"{row['count']} jobs took {took:.1f} h, {waited:.1f} h of it waiting; slowdown {row['slowdown_mean']:.1f}")
