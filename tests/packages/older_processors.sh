#!/bin/bash
# older_processors.sh AXONN: trains a tiny model on processors that QEMU emulates: one without AVX,
# and one with AVX2 and without AVX-512. The losses must be those of this processor to 2e-6. Exits
# with 77, which is "skipped", if QEMU is missing.
set -euo pipefail
program=$1
if ! command -v qemu-x86_64 >/dev/null; then
  echo "skipped: qemu-x86_64 was not found (Debian package qemu-user)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# losses NAME COMMAND...: trains, and prints the loss of each step.
losses() {
  local name=$1
  shift
  "$@" train --model.layers 1 --model.hidden 32 --model.heads 4 --model.vocab 256 \
    --data.synthetic 20KB --training.steps 3 --training.seq_len 16 --training.global_batch 4 \
    --optimizer.lr 1e-3 --training.threads 1 --parallelism.z 2 --output.dir "$work/$name" \
    >"$work/$name.log" || { cat "$work/$name.log" >&2; return 1; }
  sed -nE 's/.*"loss": ([0-9.e+-]+).*/\1/p' "$work/$name/metrics.jsonl"
}

losses here "$program" >"$work/here.losses"
failed=0
for processor in Nehalem:plain Haswell:avx2; do
  emulated=(qemu-x86_64 -cpu "${processor%:*}" "$program")
  [[ $("${emulated[@]}" info 2>/dev/null) == *"in use: kernels ${processor#*:},"* ]] ||
    { echo "$processor: 'axonn info' does not say so" >&2; failed=1; }
  losses "$processor" "${emulated[@]}" 2>/dev/null >"$work/emulated.losses"
  paste "$work/here.losses" "$work/emulated.losses" | awk -v name="$processor" '
    {d = ($2 - $1) / $1; if (d < 0) d = -d; if (d > most) most = d; if (NF != 2) bad = 1}
    END {printf "%s: %d losses differ by %.1e at most\n", name, NR, most
         exit bad || NR != 3 || most > 2e-6}' || failed=1
done
exit $failed
