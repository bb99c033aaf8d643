#!/bin/bash
# Trains on a Spot slice of TPUs from Google's queue, and asks for another one when it is taken away:
#
#   queued-resource.sh NAME ZONE TRAIN VAL PLACE
#
# `resnet` is the trainer, built for the hosts, in this directory; TRAIN and VAL are shards, PLACE is where log and
# checkpoints go (gs://...).
set -euo pipefail
name=$1 zone=$2 train=$3 val=$4 place=$5
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

# The rank and the number of hosts come from the metadata server of each host. A request that fails, and a run that
# ends by itself, end the loop: only a slice that was taken away is asked for again.
while create; do
    status=0
    tpus tpu-vm ssh "$name" --worker=all --command="./resnet --model resnet50 --image-size 224 --devices 16 --streams 4 \
        --shards '$train' --val-shards '$val' --epochs 90 --log-dir $place/log \
        --checkpoint $place/saved --checkpoint-steps 500 --keep 3 --resume auto" || status=$?
    if [ "$status" != 75 ]; then
        # The connection breaks before the state of a slice that is taken away says so.
        [ "$status" = 0 ] || sleep 120
        if [ "$(state)" = ACTIVE ]; then break; fi
    fi
    delete
done
delete
exit "${status:-1}"
