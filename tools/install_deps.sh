#!/bin/sh
# Installs what building and testing need on Debian and its relatives, and in Termux; nothing where all is
# there already.
#
#   sh tools/install_deps.sh [--clang] [--arm64]
#
# --clang: also clang 14, its sanitizers and libFuzzer. --arm64: also a compiler and an emulator for 64-bit
# ARM, and in build/arm64-sysroot its libraries (arm64_sysroot.sh).
#
# Elsewhere it names what to install and fails.
set -eu

packages="cmake ninja-build gcc libc6-dev pkg-config libpcre2-dev libutf8proc-dev libxxhash-dev
libcmocka-dev libedit-dev libcjson-dev liburing-dev libmsgpack-dev zlib1g-dev python3"
if [ -n "${TERMUX_VERSION:-}" ]; then # Android: other names, and everything belongs to the user
    packages="cmake ninja clang pkg-config pcre2 utf8proc xxhash cmocka libedit cjson libmsgpack zlib python"
fi
arm64=
for option in "$@"; do
    case $option in
    --clang) packages="$packages clang-14 libclang-rt-14-dev llvm-14" ;;
    --arm64)
        packages="$packages gcc-aarch64-linux-gnu qemu-user"
        arm64=1
        ;;
    *)
        echo "install_deps: unknown option $option" >&2
        exit 2
        ;;
    esac
done

arm64_libraries() {
    tools=$(dirname "$0")
    [ -z "$arm64" ] || sh "$tools/arm64_sysroot.sh" "$tools/../build/arm64-sysroot"
}

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
if [ -z "$missing" ]; then
    arm64_libraries
    exit 0
fi

if [ "$(id -u)" -eq 0 ] || [ -n "${TERMUX_VERSION:-}" ]; then
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
arm64_libraries
