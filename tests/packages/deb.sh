#!/bin/bash
# deb.sh BUILD: makes the Debian packages, unpacks them, and runs the program from there. Skipped
# (77) without dpkg.
set -euo pipefail
build=$1
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
env -i "$work/root/usr/bin/axonn" train configs/tiny.toml --training.steps 6 | tail -n 1
[[ $(wc -l <out/tiny/metrics.jsonl) == 6 ]] || fail "no six steps"
