#!/bin/bash
# Trains on a Spot slice of TPUs from Google's queue, and requests another slice after a preemption:
#
#   queued-resource.sh NAME ZONE TRAIN VAL OUT
#
# The current directory must have `resnet`, the trainer built for the hosts. TRAIN and VAL name shards, and OUT is the
# prefix of logs and checkpoints (gs://...).
set -euo pipefail
name=$1 zone=$2 train=$3 val=$4 out=$5
tpus() { gcloud compute tpus "$@" --zone="$zone"; }

state() { tpus queued-resources describe "$name-request" --format='value(state.state)' 2>/dev/null || echo NONE; }

create() {
    tpus queued-resources create "$name-request" --node-id="$name" --spot \
        --accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite
    until [ "$(state)" = ACTIVE ]; do
        case $(state) in FAILED | SUSPENDED | NONE) return 1 ;; esac
        sleep 30
    done
    tpus tpu-vm scp resnet "$name:" --worker=all
    tpus tpu-vm ssh "$name" --worker=all --command='python3 -m pip install --quiet libtpu'
}

delete() { tpus queued-resources delete "$name-request" --force --quiet; }

# Each host gets its rank and the number of hosts from its metadata server. The loop continues only after a preemption: it
# ends when a request fails and when the trainer ends by itself.
while create; do
    status=0
    tpus tpu-vm ssh "$name" --worker=all --command="./resnet --model resnet50 --image-size 224 --devices 16 --streams 4 \
        --shards '$train' --val-shards '$val' --epochs 90 --log-dir $out/log \
        --checkpoint $out/saved --checkpoint-steps 500 --keep 3 --resume auto" || status=$?
    if [ "$status" != 75 ]; then
        # After a preemption, the connection breaks before the state of the slice changes.
        [ "$status" = 0 ] || sleep 120
        if [ "$(state)" = ACTIVE ]; then break; fi
    fi
    delete
done
delete
exit "${status:-1}"
