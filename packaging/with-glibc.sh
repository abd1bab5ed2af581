#!/bin/sh
# Starts axonn with the C library of this system or, where that is older than glibc @GLIBC@, which
# the program needs, with the one that came along. Before 2.33, a loader knows no --version.
root=$(readlink -f "$0")
root=${root%/bin/axonn}
minor=$(@LOADER@ --version 2>/dev/null)
minor=${minor#*release version 2.}
# shellcheck disable=SC2170
if [ "${minor%%[!0-9]*}" -ge @MINOR@ ] 2>/dev/null; then
  exec "$root/libexec/axonn" "$@"
fi
exec "$root/glibc/@LOADER_NAME@" --argv0 axonn --library-path "$root/glibc" \
  "$root/libexec/axonn" "$@"
