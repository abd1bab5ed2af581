#!/bin/bash
# tarball.sh BUILD: makes the tarball, unpacks it elsewhere, and trains with nothing in the
# environment. Skipped (77) without patchelf.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
command -v patchelf >/dev/null || { echo "skipped: patchelf was not found"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "error: $*" >&2
  exit 1
}

"$source/scripts/make-tarball.sh" "$build" "$work/axonn-test.tar.gz"
mkdir "$work/some place" "$work/run"
tar -C "$work/some place" -xf "$work/axonn-test.tar.gz"
root="$work/some place/axonn-test"
cd "$work/run"
foreign=$(env -i ldd "$root/bin/axonn" | awk '$2 == "=>"' | grep -vF "$root/" |
  grep -vE '^\s*lib(c|m|dl|rt|pthread|resolv)\.so' || true)
[[ -z $foreign ]] || fail "these libraries are not the tarball's: $foreign"
grep -q . "$root"/share/doc/axonn/licences/libdnnl[23]* || fail "no licence of oneDNN"
for library in "$root"/lib/axonn/*; do
  grep -q "^  ${library##*/}: " "$root/README.txt" || fail "README.txt lacks ${library##*/}"
done

[[ $(env -i "$root/bin/axonn" info) == *"in use: kernels"* ]] || fail "axonn info"
env -i "$root/bin/axonn" train configs/tiny.toml --training.steps 6 | tail -n 2
[[ $(wc -l <out/tiny/metrics.jsonl) == 6 ]] || fail "no six steps"
