#!/usr/bin/env bash
# A cluster under Slurm: a controller on the first node, an agent on each. The job ends when the controller does, and goes
# on when a host is lost. Options behind the script's name are the controller's:
#   sbatch --nodes=4 docs/deploy/slurm.sh --cluster slices.toml
# The job's folder has its token, its logs and the controller's state. All nodes must see it.
#SBATCH --job-name=seaway
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --no-kill
set -euo pipefail

port=${SEAWAY_PORT:-29000}
folder=${SEAWAY_FOLDER:-${SLURM_SUBMIT_DIR:-$PWD}/seaway-$SLURM_JOB_ID}
state=${SEAWAY_STATE:-$folder/state} # another job's, to go on with its hosts' numbers and clients' code
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
if (($# == 0)); then set -- --hosts "${#nodes[@]}" --devices-per-host "${SEAWAY_DEVICES_PER_HOST:-4}"; fi

umask 077
mkdir -p "$folder"
python -c 'import secrets; print(secrets.token_hex(32))' >"$folder/token"

started=()
end() {
    trap - EXIT TERM INT
    kill "${started[@]}" 2>/dev/null || true # srun passes it on: agents leave, runs under way may end
    wait || true
    rm -f "$folder/token"
}
trap end EXIT
trap 'exit 143' TERM INT

# Its own name may stand for 127.0.1.1 on a node. So an agent listens where the node reaches another one: the first
# node reaches the second, and the others the first.
# shellcheck disable=SC2016 # the nodes' shells expand it
agent='
    peer=$1; if [ "$SLURM_PROCID" = 0 ]; then peer=$2; fi
    towards="import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM); s.connect((sys.argv[1], 9)); print(s.getsockname()[0])"
    address=$(python -c "$towards" "$peer")
    case $address in "" | 127.*) address=$(hostname -I | cut -d" " -f1) ;; esac
    exec python -m seaway agent --controller "$1:$3" --bind "${address:-127.0.0.1}:0" --rank "$SLURM_PROCID" \
        --platform "${SEAWAY_PLATFORM:-auto}" --token-file "$4/token" --cache "$HOME/.cache/seaway" --verbose \
        ${SEAWAY_CHECKPOINTS:+--checkpoints "$SEAWAY_CHECKPOINTS"}
'

srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap --cpu-bind=none --output="$folder/controller.log" \
    python -m seaway controller --bind "0.0.0.0:$port" --token-file "$folder/token" --state "$state" --verbose "$@" &
started+=("$!")

srun --nodes="${#nodes[@]}" --ntasks-per-node=1 --overlap --cpu-bind=none --no-kill --kill-on-bad-exit=0 --wait=0 \
    --output="$folder/agent-%t.log" bash -c "$agent" agent "$head" "${nodes[1]:-$head}" "$port" "$folder" &
started+=("$!")

echo "controller: $head:$port; token and logs: $folder"
wait -n # for whichever ends first
