#!/bin/bash
# Trains a small GPT on generated text for about a minute, on a 2x1x2x1 grid of four ranks, and lets
# it write some text.
set -euo pipefail
cd "$(dirname "$0")/.."

config=configs/quickstart.toml
out=out/quickstart
axonn=build/release/bin/axonn

show() {
  echo
  echo "\$ $axonn $*"
  "$axonn" "$@"
}

rm -rf "$out"  # so that every quickstart trains from the start
show train "$config"
show generate --model "$out/checkpoints" --prompt "The town of" --tokens 300 --temperature 0.5
echo
echo "The curve of the loss is in $out/loss.svg, every step in $out/metrics.jsonl."
echo "Next: $axonn help, README.md, and a text of your own:"
echo "  $axonn train configs/shakespeare-bytes.toml --data.text FILE.txt"
