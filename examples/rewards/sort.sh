#!/bin/sh
# Teaches a small model to sort five digits: a warm start on a few examples, after which about a
# quarter of its answers are right, then rewards for right answers alone.
#
#   examples/rewards/sort.sh [AXONN [FOLDER [SEED [FLAGS of reinforce ...]]]]
set -eu
axonn=${1:-build/release/bin/axonn} folder=${2:-out/sort} seed=${3:-1}
[ $# -gt 3 ] && shift 3 || set --
mkdir -p "$folder"

# Lines "52407=" with the sorted digits as a completion, or as what the reward compares with.
digits() { # SEED COUNT FORMAT
  awk -v seed="$1" -v count="$2" -v format="$3" 'BEGIN {
    srand(seed)
    for (n = 0; n < count; n++) {
      text = ""; split("", times)
      for (i = 0; i < 5; i++) { d = int(10 * rand()); text = text d; times[d]++ }
      sorted = ""
      for (d = 0; d < 10; d++) for (i = 0; i < times[d]; i++) sorted = sorted d
      printf format "\n", text, sorted
    }
  }'
}
digits "$seed" 3000 '{"prompt": "%s=", "completion": "%s\\n"}' > "$folder/examples.jsonl"
digits "1$seed" 20000 '{"prompt": "%s=", "answer": "%s"}' > "$folder/prompts.jsonl"

# Token 10, the end of a line, ends an answer.
"$axonn" train --model.family llama --model.layers 2 --model.hidden 64 --model.heads 4 \
  --model.ffn 192 --model.vocab 256 --data.jsonl "$folder/examples.jsonl" --data.tokenizer bytes \
  --training.seq_len 96 --training.global_batch 16 --training.steps 70 --training.dtype f32 \
  --training.seed "$seed" --optimizer.lr 3e-3 --lr_scheduler.kind constant \
  --lr_scheduler.warmup_steps 10 --output.dir "$folder/warm" --output.overwrite true

"$axonn" reinforce "$folder/warm/checkpoints" "$folder/prompts.jsonl" --full --rl.loss grpo \
  --rl.group 8 --rl.rewards exact --rl.max_tokens 8 --data.tokenizer bytes --data.eod 10 \
  --training.seq_len 14 --training.global_batch 256 --training.micro_batch 64 \
  --training.steps 900 --training.dtype f32 --training.seed "$seed" --optimizer.lr 1e-3 \
  --lr_scheduler.kind linear --lr_scheduler.warmup_steps 30 --output.dir "$folder/rewards" \
  --output.overwrite true "$@"
