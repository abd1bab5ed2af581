#!/bin/sh
# races_test.sh RACES: ThreadSanitizer finds each race of the program RACES (races.cpp), in its
# kernel, and reports nothing for the correct forms.
set -u
races=$1
failed=0
fail() {
  echo "$1: $2"
  failed=1
}
# run NAME: its output and status. Without random addresses, which this sanitizer cannot have.
run() {
  output=$(TSAN_OPTIONS=exitcode=66 setarch -R "$races" "$1" 2>&1)
  status=$?
  echo "$output" | grep -q "^$1 ran$" || fail "$1" "it does not run to its end"
}
for name in correct_barriers correct_sums correct_stacks correct_streams; do
  run $name
  [ $status -eq 0 ] || fail $name "a race is reported: $output"
done
for name in no_first_barrier:neighbours no_second_barrier:neighbours after_shuffle:after_shuffle \
  one_total:one_total first_block:first_block all_threads:all_threads 'no_event:\(add\|write\)'; do
  race=${name%%:*}
  run "$race"
  [ $status -eq 66 ] || fail "$race" "status $status, 66 expected"
  summary="SUMMARY: ThreadSanitizer: data race .*races.cpp:[0-9]* in .*${name#*:}"
  echo "$output" | grep -q "$summary" ||
    fail "$race" "the race is not reported: $output"
done
exit $failed
