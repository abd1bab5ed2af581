#!/bin/bash
# Trains a small GPT on generated text for about a minute, on a 2x1x2x1 grid of four ranks, and
# generates some text with it.
set -euo pipefail
cd "$(dirname "$0")/.."

config=configs/quickstart.toml
out=out/quickstart
axonn=build/release/bin/axonn

# show ARGUMENTS...: prints the command so that it can be pasted, and runs it.
show() {
  local word line="\$ $axonn"
  for word; do
    [[ $word == *" "* ]] && word="\"$word\""
    line+=" $word"
  done
  echo
  echo "$line"
  "$axonn" "$@"
}

show train "$config"
show generate --model "$out/checkpoints" --prompt "The town of" --tokens 300 --temperature 0.5
echo
echo "The loss curve is in $out/loss.svg, the figures of every step in $out/metrics.jsonl."
echo "Next: read README.md, run $axonn help, or train on your own text:"
echo "  $axonn train configs/shakespeare-bytes.toml --data.text FILE.txt"
