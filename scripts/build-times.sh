#!/bin/bash
# build-times.sh [PRESET [ROWS]]: prints where a build's time went; default: preset dev, 25 rows.
#
# Prints the files that took longest to build (the last build of each, from Ninja's log), the
# seconds of each folder, and the headers that contribute most lines. The preset must build with
# Ninja, and without hits in ccache: CCACHE_DISABLE=1. The lines of a header include those of all
# headers that it is the first to include, summed over all units of the build. If a header brings
# thousands of lines to many units, include it in one source only.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
  -h | --help)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
    exit
    ;;
esac
build=build/${1:-dev}
rows=${2:-25}
if [[ ! -f $build/.ninja_log ]]; then
  echo "error: $build/.ninja_log does not exist: first build the preset with Ninja" >&2
  exit 2
fi

# The log has a line per output: start, end (ms), time stamp, output, hash; the last one counts.
times() {
  awk 'NR > 1 {ms[$4] = $2 - $1} END {for (f in ms) print ms[f] / 1000, f}' "$build/.ninja_log"
}
echo "seconds  file"
times | sort -rn | awk -v rows="$rows" 'NR <= rows {printf "%7.1f  %s\n", $1, $2}'
echo
echo "seconds  files  folder"
times | awk '{split($2, part, "/"); f = part[1] "/" part[2]; s[f] += $1; n[f]++}
  END {for (f in s) printf "%7.1f  %5d  %s\n", s[f], n[f], f}' | sort -rn | head -n "$rows"

# A preprocessed unit has "# LINE "FILE" 1" where it enters a file and 2 where it returns.
echo
echo "  lines  units  header"
sed -n 's/^ *"command": "\(.*\)",$/\1/p' "$build/compile_commands.json" |
  grep -v '\.cu -o\|\.cu$' |
  sed 's/\\"/"/g; s/ -o [^ ]*//; s/ -c / -E /; s/^[^ ]*ccache //' |
  (cd "$build" && while read -r command; do bash -c "$command" 2>/dev/null; echo '# end'; done) |
  awk -v rows="$rows" '
    function leave() { lines[stack[depth]] += count - start[depth]; depth-- }
    $1 == "#" && $2 == "end" {
      while (depth) leave()
      for (f in seen) units[f]++
      split("", seen)
      next
    }
    $1 == "#" && $2 ~ /^[0-9]+$/ {
      if ($4 == 1) { depth++; stack[depth] = $3; start[depth] = count; seen[$3] = 1 }
      else if ($4 == 2 && depth) leave()
      next
    }
    {count++; total++}
    END {
      for (f in lines) printf "%9d  %5d  %s\n", lines[f], units[f], f
      printf "%9d  %5s  in all\n", total, ""
    }' | sort -rn | awk -v rows="$rows" 'NR <= rows + 1 {gsub("\"", ""); print}'
