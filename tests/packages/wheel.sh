#!/bin/bash
# wheel.sh BUILD: what scripts/wheel.sh puts into a wheel, without pip: the program trains with this
# system's C library and with its own, to the same bits, and scripts/check-glibc.sh finds what an
# older system lacks. Skipped (77) without patchelf.
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

# train NAME AXONN: six steps; prints their losses.
train() {
  env -i "$2" train configs/tiny.toml --training.steps 6 --output.dir "$work/$1" >"$work/$1.log" ||
    { cat "$work/$1.log" >&2; fail "$1"; }
  sed -nE 's/.*"loss": ([0-9.e+-]+).*/\1/p' "$work/$1/metrics.jsonl"
}

wheel=$work/some\ place root=$wheel/package/_program
cmake --install "$build" --prefix "$root" --component program --strip >/dev/null
"$source/scripts/bundle-libraries.sh" --with-glibc "$root" >"$work/bundled"
glibc=$(sed -n 's/^glibc //p' "$work/bundled")
cd "$work"
train here "$root/bin/axonn" >here.losses
[[ $(wc -l <here.losses) == 6 ]] || fail "no six steps"

# As on a system with an older glibc: the program asks for one that no system has.
sed -i "s/-ge ${glibc#2.} /-ge 999 /" "$root/bin/axonn"
ln -s "$root/bin/axonn" "$work/axonn"
train own "$work/axonn" >own.losses
cmp here.losses own.losses || fail "other losses with the wheel's C library"
sed -i "s/ --argv0 / --list&/" "$root/bin/axonn"
libraries=$(env -i LD_LIBRARY_PATH=/usr/lib "$work/axonn" | awk '$2 == "=>"')
grep -qF "libc.so.6 => $root/glibc/" <<<"$libraries" || fail "the system's C library: $libraries"
foreign=$(grep -vF "=> $root/" <<<"$libraries" || true)
[[ -z $foreign ]] || fail "these libraries are not the wheel's: $foreign"

check=("$source/scripts/check-glibc.sh" "$wheel" 2.28 "$root")
"${check[@]}" || fail "the wheel asks for too much"
# refuses TEXT: the check fails and says so.
refuses() {
  ! "${check[@]}" 2>said || fail "accepted, although $1"
  grep -qF "$1" said || { cat said >&2; fail "said nothing of: $1"; }
}
cp "$root/libexec/axonn" "$wheel/package/module.so"  # it would be loaded by the system's loader
refuses "$wheel/package/module.so asks libc.so.6 for GLIBC_2.34"
refuses "$wheel/package/module.so asks libdnnl.so"
rm "$wheel/package/module.so"
mv "$root/glibc/libm.so.6" .
refuses "$root/libexec/axonn asks libm.so.6 for GLIBC_2."
mv libm.so.6 "$root/glibc"
mv "$root"/lib/axonn/libfmt.so* .
refuses "$root/libexec/axonn asks libfmt.so"
