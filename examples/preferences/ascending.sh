#!/bin/sh
# Turns a small model's preference: it was trained to sort digits upwards or downwards, one as often
# as the other, and then gets pairs in which the upward answer was preferred. What counts is the
# share of held-out pairs whose preferred answer the model finds likelier.
#
#   examples/preferences/ascending.sh [AXONN [FOLDER [SEED [FLAGS of prefer ...]]]]
set -eu
axonn=${1:-build/release/bin/axonn} folder=${2:-out/ascending} seed=${3:-1}
[ $# -gt 3 ] && shift 3 || set --
mkdir -p "$folder"

# Lines of five digits; what goes into the format: the digits, sorted upwards, sorted downwards; in
# the examples up and down change places at random.
digits() { # SEED COUNT FORMAT
  awk -v seed="$1" -v count="$2" -v format="$3" 'BEGIN {
    srand(seed)
    for (n = 0; n < count; n++) {
      text = up = down = ""; split("", times)
      for (i = 0; i < 5; i++) { d = int(10 * rand()); text = text d; times[d]++ }
      for (d = 0; d < 10; d++) for (i = 0; i < times[d]; i++) { up = up d; down = d down }
      if (format ~ /completion/ && rand() < 0.5) up = down
      printf format "\n", text, up, down
    }
  }'
}
digits "$seed" 6000 '{"prompt": "%s=", "completion": "%s\\n"}' > "$folder/examples.jsonl"
digits "1$seed" 800 '{"prompt": "%s=", "chosen": "%s\\n", "rejected": "%s\\n"}' \
  > "$folder/pairs.jsonl"

"$axonn" train --model.family llama --model.layers 2 --model.hidden 64 --model.heads 4 \
  --model.ffn 192 --model.vocab 256 --data.jsonl "$folder/examples.jsonl" --data.tokenizer bytes \
  --training.seq_len 96 --training.global_batch 16 --training.steps 300 --training.dtype f32 \
  --training.seed "$seed" --optimizer.lr 3e-3 --lr_scheduler.kind constant \
  --lr_scheduler.warmup_steps 10 --output.dir "$folder/warm" --output.overwrite true

"$axonn" prefer "$folder/warm/checkpoints" "$folder/pairs.jsonl" --full --data.tokenizer bytes \
  --data.validation 0.25 --data.eod 10 --training.seq_len 64 --training.global_batch 16 \
  --training.steps 60 --training.dtype f32 --training.seed "$seed" --optimizer.lr 5e-4 \
  --training.eval_every 10 --output.dir "$folder/preferred" --output.overwrite true "$@"
