#!/usr/bin/env bash
# One TPU slice (or any island of hosts) under Slurm: a controller on the first node, an agent on each.
#   sbatch --nodes=4 docs/deploy/slurm.sh
#SBATCH --job-name=seaway
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
set -euo pipefail

port=${SEAWAY_PORT:-29000}
devices=${SEAWAY_DEVICES_PER_HOST:-4}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

umask 077
token=$HOME/.seaway-token-$SLURM_JOB_ID
python -c 'import secrets; print(secrets.token_hex(32))' >"$token"
trap 'rm -f "$token"' EXIT

srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
    python -m seaway controller --bind "0.0.0.0:$port" --hosts "$SLURM_JOB_NUM_NODES" \
    --devices-per-host "$devices" --token-file "$token" &

srun --ntasks-per-node=1 --overlap bash -c \
    'exec python -m seaway agent --controller "$0:$1" --bind "$(hostname -i | cut -d" " -f1):0" \
     --platform tpu --rank "$SLURM_PROCID" --token-file "$2" --cache "$HOME/.cache/seaway" \
     ${SEAWAY_CHECKPOINTS:+--checkpoints "$SEAWAY_CHECKPOINTS"}' "$head" "$port" "$token"
