#!/bin/bash
# tarball.sh BUILD [SYSROOT]: makes the tarball, unpacks it elsewhere, and trains with nothing in
# the environment. With SYSROOT, that of scripts/arm64-sysroot.sh, QEMU runs the program for 64-bit
# ARM with nothing of the SYSROOT but the C library. Skipped (77) without patchelf.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
build=$1 sysroot=${2:-}
command -v patchelf >/dev/null || { echo "skipped: patchelf was not found"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "error: $*" >&2
  exit 1
}

"$source/scripts/make-tarball.sh" "$build" "$work/axonn-test.tar.gz" ${sysroot:+"$sysroot"}
mkdir "$work/some place" "$work/run"
tar -C "$work/some place" -xf "$work/axonn-test.tar.gz"
root="$work/some place/axonn-test"
cd "$work/run"
run=() list=(ldd "$root/bin/axonn")
if [[ -n $sysroot ]]; then
  from=$sysroot/lib/aarch64-linux-gnu to=$work/c/lib/aarch64-linux-gnu
  mkdir -p "$to"
  cp "$sysroot"/lib/ld-linux-aarch64.so.1 "$work/c/lib"
  cp "$from"/lib{c,m,dl,rt,pthread,resolv}.so.* "$to"
  run=(/usr/bin/qemu-aarch64 -E OMP_WAIT_POLICY=passive -L "$work/c")
  list=("${run[@]}" "$work/c/lib/ld-linux-aarch64.so.1" --list "$root/bin/axonn")
fi
foreign=$(env -i "${list[@]}" | awk '$2 == "=>"' | grep -vF "$root/" |
  grep -vE '^\s*(lib(c|m|dl|rt|pthread|resolv)|.*/ld-linux[^/]*)\.so' || true)
[[ -z $foreign ]] || fail "these libraries are not the tarball's: $foreign"
grep -q . "$root"/share/doc/axonn/licences/libdnnl[23]* || fail "no licence of oneDNN"
for library in "$root"/lib/axonn/*; do
  grep -q "^  ${library##*/}: " "$root/README.txt" || fail "README.txt lacks ${library##*/}"
done

[[ $(env -i "${run[@]}" "$root/bin/axonn" info) == *"in use: kernels"* ]] || fail "axonn info"
env -i "${run[@]}" "$root/bin/axonn" train configs/tiny.toml --training.steps 6 | tail -n 2
[[ $(wc -l <out/tiny/metrics.jsonl) == 6 ]] || fail "no six steps"
