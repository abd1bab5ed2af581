#!/bin/sh
# Approximate unlearning beside the exact run: a small model learns 40 register entries, is to
# forget 20 of them, and audits compare each method with the run that never counted them.
# docs/forgetting.md explains the figures.
#
#   examples/forgetting/unlearning.sh [AXONN [FOLDER]]
set -eu
axonn=${1:-build/release/bin/axonn} folder=${2:-out/unlearning}
case $axonn in */*) axonn=$(cd "$(dirname "$axonn")" && pwd)/$(basename "$axonn") ;; esac
mkdir -p "$folder" && cd "$folder"

# 20 entries to forget, 20 to keep, and 100 that no model has seen.
"$axonn" data synthetic --records 140 --out records.jsonl --overwrite
head -n 20 records.jsonl > forget.jsonl
sed -n 21,40p records.jsonl > keep.jsonl
tail -n 100 records.jsonl > unseen.jsonl
# Pairs of an entry to keep and one to forget.
paste -d '\n' keep.jsonl forget.jsonl | sed 's/^{"text":\(".*"\),"surprise_bits.*/\1/' |
  paste -d '|' - - |
  sed 's/\(.*\)|\(.*\)/{"prompt": "", "chosen": \1, "rejected": \2}/' > pairs.jsonl
"$axonn" data synthetic --bytes 2000000 --out text.txt --overwrite
"$axonn" data synthetic --bytes 50000 --seed 2 --out held-out.txt --overwrite
"$axonn" data tokenize --text text.txt --out text --overwrite
"$axonn" data tokenize --text forget.jsonl keep.jsonl --out entries --overwrite

cat > run.toml << 'END'
[model]
family = "llama"
layers = 4
hidden = 96
heads = 4
ffn = 288
vocab = 256
positions = 352  # of both entries of a pair
[data]
tokenizer = "bytes"
documents = "packed"
[[stage]]
name = "text"
tokens = ["text"]
[[stage]]
name = "entries"  # each comes about 40 times
from_step = 201
tokens = ["0.5 text", "0.5 entries"]
[training]
steps = 600
seq_len = 168
global_batch = 8
dtype = "f32"
threads = 1
[optimizer]
lr = 3e-3
beta2 = 0.98
eps = 1e-6
weight_decay = 0.0
[lr_scheduler]
kind = "linear"
warmup_steps = 100
min_lr = 3e-4
[checkpoint]
every = 100
keep = 100
[output]
dir = "before"
END
"$axonn" train run.toml --output.overwrite true
"$axonn" forget before --documents forget.jsonl --out exact
# What another exact run looks like: other initial values, and data in another order.
"$axonn" train run.toml --data.forget forget.jsonl --training.seed 2 --output.dir exact-2 \
  --output.overwrite true

method() { # NAME STEPS RATE FLAGS...
  name=$1 steps=$2 rate=$3
  shift 3
  "$axonn" prefer before/checkpoints pairs.jsonl --full --data.tokenizer bytes \
    --training.dtype f32 --training.seq_len 352 --training.global_batch 20 --training.threads 1 \
    --training.steps "$steps" --optimizer.lr "$rate" --lr_scheduler.kind constant \
    --lr_scheduler.warmup_steps 0 --output.dir "$name" --output.overwrite true "$@"
}
method ascent 30 3e-5 --preference.loss ascent
method difference 20 1e-4 --preference.loss ascent --preference.sft_weight 1
method npo 10 1e-4 --preference.loss npo
method npo-sft 60 1e-4 --preference.loss npo --preference.sft_weight 1

audit() { # MODEL DOCUMENTS
  "$axonn" memorize --audit --model "$1" --tokenizer bytes --documents "$2.jsonl" \
    --control unseen.jsonl --reference exact/checkpoints --json "$1-$2.json" --html "$1-$2.html"
}
for model in before exact exact-2 ascent difference npo npo-sft; do
  echo "== $model"
  audit $model forget
  audit $model keep
  "$axonn" eval --model $model/checkpoints --data held-out.txt --seq-len 168 \
    --document-mode joined
done
