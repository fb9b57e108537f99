#!/bin/sh
# Installs what building and testing need on Debian and its relatives; nothing where all is there already.
#
#   sh tools/install_deps.sh [--clang]     --clang: also clang 14, its sanitizers and libFuzzer
#
# Elsewhere it names what to install and fails.
set -eu

packages="cmake ninja-build gcc libc6-dev pkg-config libpcre2-dev libutf8proc-dev libxxhash-dev
libcmocka-dev libedit-dev libcjson-dev liburing-dev libmsgpack-dev python3"
if [ "${1:-}" = --clang ]; then
    packages="$packages clang-14 libclang-rt-14-dev llvm-14"
fi

# Without dpkg, what counts is that the tools and libraries are found.
have_without_dpkg() {
    for tool in cmake ninja pkg-config python3; do
        command -v "$tool" >/dev/null 2>&1 || return 1
    done
    pkg-config --exists libpcre2-8 libutf8proc libxxhash cmocka libedit libcjson &&
        { pkg-config --exists msgpack-c || pkg-config --exists msgpack; }
}

if ! command -v dpkg-query >/dev/null 2>&1; then
    have_without_dpkg && exit 0
    echo "install_deps: no dpkg here; please install the equivalents of:" $packages >&2
    exit 1
fi

missing=
for p in $packages; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1; then
    as_root=sudo
else
    echo "install_deps: missing, and neither root nor sudo is there to install them:" >&2
    echo "  apt-get install$missing" >&2
    exit 1
fi
echo "install_deps: installing$missing"
$as_root apt-get update -qq || echo "install_deps: apt-get update failed; trying with the lists there are" >&2
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing
