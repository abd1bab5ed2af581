#!/bin/bash
# deb.sh BUILD [SYSROOT]: makes the Debian packages, unpacks them, and runs the program from there.
# With SYSROOT, that of scripts/arm64-sysroot.sh, they are for 64-bit ARM, and QEMU runs the
# program. Skipped (77) without dpkg.
set -euo pipefail
build=$1 sysroot=${2:-}
command -v dpkg-shlibdeps >/dev/null || { echo "skipped: dpkg-shlibdeps was not found"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "error: $*" >&2
  exit 1
}

cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/made" >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; fail "cpack"; }
program=$(echo "$work"/made/axonn_*.deb) development=$(echo "$work"/made/axonn-dev_*.deb)
[[ $(dpkg-deb -f "$program" Depends) == *libdnnl* ]] || fail "$(dpkg-deb -f "$program")"
[[ $(dpkg-deb -f "$development" Depends) == *libdnnl-dev* ]] || fail "$(dpkg-deb -f "$development")"
architecture=$(dpkg --print-architecture) run=()
if [[ -n $sysroot ]]; then
  architecture=arm64 run=(/usr/bin/qemu-aarch64 -E OMP_WAIT_POLICY=passive -L "$sysroot")
  [[ $(dpkg-deb -f "$program" Depends) == *"libc6 (>= "* ]] || fail "$(dpkg-deb -f "$program")"
fi
for package in "$program" "$development"; do
  [[ $(dpkg-deb -f "$package" Architecture) == "$architecture" ]] ||
    fail "$(dpkg-deb -f "$package")"
done
for package in "$program" "$development"; do dpkg-deb -c "$package" >"${package%.deb}.files"; done
for file in bash-completion/completions/axonn zsh/vendor-completions/_axonn \
  fish/vendor_completions.d/axonn.fish man/man1/axonn.1; do
  grep -q " ./usr/share/$file" "${program%.deb}.files" || fail "no share/$file"
done
! grep -vE ' \./usr/(bin|share)/|/$' "${program%.deb}.files" || fail "files in foreign places"
for file in usr/include/axonn/axonn.h 'usr/lib/.*cmake/axonn/axonn-config.cmake'; do
  grep -q " ./$file$" "${development%.deb}.files" || fail "no $file"
done

dpkg-deb -x "$program" "$work/root"
mkdir "$work/run"
cd "$work/run"
run+=("$work/root/usr/bin/axonn")
[[ $(env -i "${run[@]}" info) == *"in use: kernels"* ]] || fail "axonn info"
env -i "${run[@]}" train configs/tiny.toml --training.steps 6 | tail -n 1
[[ $(wc -l <out/tiny/metrics.jsonl) == 6 ]] || fail "no six steps"
