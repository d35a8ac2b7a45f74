#!/bin/sh
# Starts the page with the results of earlier runs, then trains.
python -m http.server 29543 --directory . >/dev/null 2>&1 &
pages=$!
trap 'kill $pages 2>/dev/null' EXIT
trap 'exit 143' TERM INT
sleep 1
torchrun --master-addr 127.0.0.1 --master-port 29543 --nproc-per-node 2 train.py
