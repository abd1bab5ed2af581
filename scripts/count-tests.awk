# Counts the cases in ctest's LastTest.log. Counts each GoogleTest case once, however many ranks ran
# it; a test without GoogleTest cases, or one that failed outside of its cases, counts as one case.
# Prints "PASSED FAILED SKIPPED", then a line for each failure.

function end_test() {
  if (name == "") return
  cases = 0
  bad = 0
  for (c in state) {
    cases++
    if (state[c] == "failed") { bad++; failures = failures "  " label ": " name ": " c "\n" }
    else if (state[c] == "skipped") skipped++
    else passed++
  }
  failed += bad
  if (!ok && !bad) { failed++; failures = failures "  " label ": " name "\n" }
  if (ok && !cases) passed++
  split("", state)
  name = ""
}

function note(result, text) {
  sub(/^.*\] /, "", text)
  sub(/,? .*$/, "", text)
  if (state[text] != "failed") state[text] = result
}

/^[0-9]+\/[0-9]+ Test: / { end_test(); name = $NF; ok = 0; next }
name == "" { next }
/\[       OK \] / { note("passed", $0) }
/\[  SKIPPED \] [^ ]+ \(/ { note("skipped", $0) }
/\[  FAILED  \] [^ ]+\.[^ ]+( |,|$)/ { note("failed", $0) }
/^[a-z_]+: skipped: / { state[$1] = "skipped" }  # an attack
/^Test Passed\.$/ { ok = 1 }
END {
  end_test()
  print passed + 0, failed + 0, skipped + 0
  printf "%s", failures
}
