#!/bin/bash
# aarch64.sh HERE THERE SYSROOT [MPIRUN]: compares the program for 64-bit ARM, THERE, which QEMU
# runs with the libraries of SYSROOT, to this machine's, HERE: the sets of instructions in use,
# losses on two grids in f32 and bf16, bits over lengths of registers, threads, and ranks that
# MPIRUN starts, token files, checkpoints that one writes and the other resumes, and generated text.
# THERE may have a single set of kernels, for NEON with bf16.
# Exits with 77, which is "skipped", if QEMU is missing.
set -euo pipefail
here=$1 there=$2 sysroot=$3 mpirun=${4:-}
if ! command -v qemu-aarch64 >/dev/null; then
  echo "skipped: qemu-aarch64 was not found (Debian package qemu-user)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
  echo "error: $*" >&2
  failed=1
}
# Threads that spin while they wait take an emulator forever.
export OMP_WAIT_POLICY=passive

# on PROCESSOR COMMAND...: runs a command of the program: HERE if the processor is "here". With
# $launcher before it.
launcher=()
on() {
  local processor=$1
  shift
  if [[ $processor == here ]]; then
    "${launcher[@]}" "$here" "$@"
  else
    "${launcher[@]}" qemu-aarch64 -cpu "$processor" -L "$sysroot" "$there" "$@"
  fi
}

# train PROCESSOR NAME FLAG...: trains into folder NAME, and writes the loss of each step to
# NAME.losses.
run=(train --model.layers 2 --model.hidden 32 --model.heads 4 --model.vocab 256
  --data.synthetic 20KB --training.steps 4 --training.seq_len 16 --training.global_batch 4
  --optimizer.lr 1e-3 --training.threads 1 --checkpoint.every 2)
train() {
  local processor=$1 name=$2
  shift 2
  on "$processor" "${run[@]}" --output.dir "$work/$name" "$@" >"$work/$name.log" 2>&1 ||
    { cat "$work/$name.log" >&2; fail "train $name"; }
  sed -nE 's/.*"loss": ([0-9.e+-]+).*/\1/p' "$work/$name/metrics.jsonl" >"$work/$name.losses"
}

# compare NAME OTHER STEPS MOST: the last losses of two trainings differ by at most MOST.
compare() {
  paste <(tail -n "$3" "$work/$1.losses") <(tail -n "$3" "$work/$2.losses") |
    awk -v names="$1, $2" -v steps="$3" -v limit="$4" '
    {d = ($2 - $1) / $1; if (d < 0) d = -d; if (d > most) most = d; if (NF != 2) bad = 1}
    END {printf "%s: %d losses differ by %.1e at most\n", names, NR, most
         exit bad || NR != steps || most > limit}' || fail "losses of $1 and $2"
}

# same WHAT TEXT OTHER
same() { [[ -n $2 && $2 == "$3" ]] || fail "$1 differ: $2 and $3"; }

# Emulated processors, by the instructions that they have: SVE of 128 bits is no wider than NEON.
neon=neoverse-n1 neon_bf16=max,sve128=on sve512=a64fx sve256_bf16=max,sve256=on
all=("$neon" "$neon_bf16" "$sve512" "$sve256_bf16")
sets=("$neon:neon" "$neon_bf16:neon-bf16" "max,sve=off:neon-bf16" "$sve512:sve512"
  "$sve256_bf16:sve256-bf16")
if [[ $(on "$neon_bf16" info) != *"in use: kernels neon-bf16,"* ]]; then
  echo "one set of kernels: not compared to others"
  neon=$neon_bf16 all=("$neon_bf16") sets=()
fi
for set in "${sets[@]}"; do
  info=$(on "${set%:*}" info)
  [[ $info == *"in use: kernels ${set#*:},"* && $info == *" for aarch64"* ]] ||
    fail "${set%:*}: 'axonn info' says: $info"
done

for grid in 2,2,1,1 1,1,2,2; do
  IFS=, read -r x y z data <<<"$grid"
  axes=(--parallelism.x "$x" --parallelism.y "$y" --parallelism.z "$z" --parallelism.data "$data")
  train here "here-$grid" "${axes[@]}"
  train $neon "there-$grid" "${axes[@]}"
  compare "here-$grid" "there-$grid" 4 1e-5
  train here "here-bf16-$grid" "${axes[@]}" --training.dtype bf16
  for processor in "${all[@]:0:2}"; do
    train "$processor" "$processor-bf16-$grid" "${axes[@]}" --training.dtype bf16
    compare "here-bf16-$grid" "$processor-bf16-$grid" 4 2e-3
  done
done

# The same bits by registers of every length, and of bf16 by the same kind of products.
hash_of() { on here hash "$work/$1" | sed 1d; }
for dtype in f32 bf16; do
  for processor in "${all[@]}"; do
    train "$processor" "$processor-$dtype" --parallelism.x 2 --parallelism.z 2 \
      --training.dtype "$dtype"
  done
done
pairs=("$neon $sve512 f32" "$neon $neon_bf16 f32" "$neon $sve256_bf16 f32"
  "$neon $sve512 bf16" "$neon_bf16 $sve256_bf16 bf16")
((${#sets[@]})) || pairs=()
for pair in "${pairs[@]}"; do
  read -r processor other dtype <<<"$pair"
  same "bits of $processor and $other in $dtype" "$(hash_of "$processor-$dtype")" \
    "$(hash_of "$other-$dtype")"
done
[[ -z ${pairs[*]} || $(hash_of "$neon-bf16") != "$(hash_of "$neon_bf16-bf16")" ]] ||
  fail "bf16 has one kind of bits"

grid=2,2,1,1
train $neon_bf16 threads-1 --training.dtype bf16
train $neon_bf16 threads-2 --training.dtype bf16 --training.threads 2
same "bits of one and of two threads" "$(hash_of threads-1)" "$(hash_of threads-2)"

if [[ -n $mpirun ]]; then
  axes=(--parallelism.x 2 --parallelism.y 2)
  train $neon_bf16 of-threads "${axes[@]}" --training.dtype bf16
  launcher=("$mpirun" -np 4)
  train $neon_bf16 of-mpi "${axes[@]}" --training.dtype bf16
  launcher=()
  same "bits of ranks that are threads and processes" "$(hash_of of-threads)" "$(hash_of of-mpi)"
  # Ranks of two architectures are refused, with the names of both.
  # shellcheck disable=SC2016
  launcher=("$mpirun" -np 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec "$@"; shift 6
    exec "$HERE" "$@"' sh)
  if HERE=$here on "$neon" "${run[@]}" --parallelism.z 2 --output.dir "$work/mixed" \
    >"$work/mixed.log" 2>&1; then fail "a mixed run was not refused"; fi
  grep -q "on $(hostname) is built for $(uname -m) .*, but that of rank 0 on .* for aarch64 " \
    "$work/mixed.log" || { cat "$work/mixed.log" >&2; fail "refusal of a mixed run"; }
  launcher=()
else
  echo "no MPI in the build, so no training with it"
fi

for from in here there; do
  to=there processor=$neon
  [[ $from == here ]] || to=here processor=here
  checkpoint=$work/$from-$grid/checkpoints/step-2
  same "hashes of a checkpoint" "$(on here hash "$checkpoint")" "$(on max hash "$checkpoint")"
  train "$processor" "$from-to-$to" --checkpoint.resume "$checkpoint"
  compare "$from-$grid" "$from-to-$to" 2 1e-5
done

generate=(generate --model "$work/here-$grid" --tokenizer bytes --prompt "The town of" --tokens 24
  --temperature 0)
text=$(on here "${generate[@]}" 2>/dev/null)
for processor in "${all[@]}"; do
  same "generated texts" "$text" "$(on "$processor" "${generate[@]}" 2>/dev/null)"
done

for processor in here max; do
  on "$processor" data tokenize --tokenizer bytes --text "$0" --out "$work/$processor.bin" \
    >/dev/null
done
cmp "$work/here.bin" "$work/max.bin" || fail "token files differ"
exit $failed
