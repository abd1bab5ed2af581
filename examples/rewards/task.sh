#!/bin/sh
# Teaches a small model a task: a warm start on a few examples, after which less than a third of its
# answers are right, then rewards alone.
#
#   examples/rewards/task.sh TASK [AXONN [FOLDER [SEED [FLAGS of reinforce ...]]]]
#
#   sort   52407= is answered by 02457
#   add2   47+38= by 58, the digits of the sum from the last to the first
#   add3   the same of numbers of three digits
#   think  4+6+3= by <think>4+6=10</think>13: a reward of a half for the form and one for the number
#
# LAUNCHER="mpirun -n 4" starts the run with rewards; its grid is a flag: --parallelism.grid 2,1,2,1
set -eu
task=${1:?give a task: sort, add2, add3 or think}
axonn=${2:-build/release/bin/axonn} folder=${3:-out/$1} seed=${4:-1}
[ $# -gt 4 ] && shift 4 || set --
mkdir -p "$folder"

# Lines with a prompt and its answer, or with an example's completion. Nine of ten examples of think
# lack the first tag.
lines() { # SEED KEY
  awk -v task="$task" -v seed="$1" -v key="$2" '
    function digit(below) { return int(below * rand()) }
    function reversed(n,  text) {
      do { text = text (n % 10); n = int(n / 10) } while (n > 0)
      return text
    }
    BEGIN {
      srand(seed)
      for (n = 0; n < 20000; n++) {
        if (task == "sort") {
          prompt = ""; answer = ""; split("", times)
          for (i = 0; i < 5; i++) { d = digit(10); prompt = prompt d; times[d]++ }
          for (d = 0; d < 10; d++) for (i = 0; i < times[d]; i++) answer = answer d
        } else if (task == "think") {
          a = digit(7); b = digit(7); c = digit(7)
          prompt = a "+" b "+" c; answer = a + b + c
          if (key == "completion") {
            answer = (rand() < 0.1 ? "<" : "[") "think>" a "+" b "=" a + b "</think>" answer
          }
        } else {
          least = task == "add2" ? 10 : 100
          a = least + int(9 * least * rand()); b = least + int(9 * least * rand())
          prompt = a "+" b; answer = reversed(a + b)
        }
        end = key == "completion" ? "\\n" : ""
        printf "{\"prompt\": \"%s=\", \"%s\": \"%s%s\"}\n", prompt, key, answer, end
      }
    }'
}
every=20 weights=1 layers=2 kind=adamw rate=1e-3
case $task in
  sort) loss=0.75 length=14 tokens=8 steps=600 rewards=exact ;;
  add2) loss=0.55 every=10 length=12 tokens=5 steps=1000 rewards=exact ;;
  add3)
    layers=4 kind=muon loss=0.46 every=10 length=16 tokens=6 steps=1600 rewards=exact rate=4e-4 ;;
  think) loss=0.16 length=30 tokens=24 steps=600 rewards=format,number weights=0.5,0.5 ;;
  *) echo "there is no task $task: sort, add2, add3 or think" >&2; exit 2 ;;
esac
lines "$seed" completion > "$folder/examples.jsonl"
lines "1$seed" answer > "$folder/prompts.jsonl"

# The warm start goes on until the mean loss of its last ten steps is $loss: some seeds take three
# times the steps of others.
rm -rf "$folder/warm"
warm_up() { # STEPS
  "$axonn" train --model.family llama --model.layers $layers --model.hidden 64 --model.heads 4 \
    --model.ffn 192 --model.vocab 256 --data.jsonl "$folder/examples.jsonl" \
    --data.tokenizer bytes --training.seq_len 96 --training.global_batch 16 \
    --training.steps "$1" --training.dtype f32 --training.seed "$seed" --training.threads 1 \
    --optimizer.kind $kind --optimizer.lr 2e-3 --lr_scheduler.kind constant \
    --lr_scheduler.warmup_steps 10 --output.dir "$folder/warm" --checkpoint.keep 1 \
    --checkpoint.resume auto || exit
  tail -n 10 "$folder/warm/metrics.jsonl" | sed 's/.*"loss": *\([0-9.]*\).*/\1/' |
    awk -v wanted=$loss '{ sum += $1 } END { exit sum / NR > wanted }'
}
warm=40
until warm_up $warm; do warm=$((warm + every)); done

# Token 10, the end of a line, ends an answer.
${LAUNCHER-} "$axonn" reinforce "$folder/warm/checkpoints" "$folder/prompts.jsonl" --full \
  --rl.loss grpo --rl.group 8 --rl.iterations 2 --rl.rewards $rewards --rl.reward_weights $weights \
  --rl.max_tokens $tokens --data.tokenizer bytes --data.eod 10 --training.seq_len $length \
  --training.global_batch 256 --training.micro_batch 64 --training.steps $steps \
  --training.dtype f32 --training.seed "$seed" --training.threads 1 --optimizer.kind muon \
  --optimizer.lr $rate --lr_scheduler.kind wsd --lr_scheduler.decay_steps $((steps / 4)) \
  --lr_scheduler.warmup_steps 30 --output.dir "$folder/rewards" --output.overwrite true "$@"
