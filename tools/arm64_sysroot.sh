#!/bin/sh
# Makes a folder with the arm64 libraries that Sluice and its tests are linked with: what tools/arm64.cmake
# cross-compiles against, and where qemu-aarch64 finds them.
#
#   sh tools/arm64_sysroot.sh FOLDER
#
# Takes Debian's packages, of the release that this machine has, by an apt with settings of its own: neither
# the system's package lists nor its architectures are touched, and nothing is installed, so packages of two
# architectures cannot be in each other's way, and root is not needed. FOLDER appears when all is there.
set -eu

if [ $# -ne 1 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
folder=$1
wanted="libc6-dev libpcre2-dev libutf8proc-dev libxxhash-dev libcmocka-dev libedit-dev libcjson-dev"
wanted="$wanted liburing-dev zlib1g-dev"
# Only its C headers are used; what else it depends on is C++.
headers=libmsgpack-dev

# A folder made for another list of packages is made again.
if [ "$(cat "$folder/packages" 2>/dev/null)" = "$wanted $headers" ]; then exit 0; fi
if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg >/dev/null 2>&1; then
    echo "arm64_sysroot: no apt here; give the folder of your own arm64 libraries to cmake instead," >&2
    echo "  as -DSLUICE_ARM64_SYSROOT=FOLDER" >&2
    exit 1
fi

mkdir -p "$(dirname "$folder")"
folder=$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder") # below the working directory changes
work=$folder.partial
rm -rf "$work"
mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/root"
: >"$work/apt/status"
cat >"$work/apt/apt.conf" <<EOF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Dir::State "$work/apt";
Dir::State::Lists "$work/apt/lists";
Dir::State::status "$work/apt/status";
Dir::Cache "$work/apt/cache";
Acquire::Languages "none";
EOF

echo "arm64_sysroot: fetching arm64 libraries into $folder"
log=$work/log
if ! {
    APT_CONFIG=$work/apt/apt.conf apt-get update -q &&
        APT_CONFIG=$work/apt/apt.conf apt-get install -q -y --download-only $wanted &&
        cd "$work/apt/cache/archives" &&
        APT_CONFIG=$work/apt/apt.conf apt-get download -q $headers
} >"$log" 2>&1; then
    cat "$log" >&2
    echo "arm64_sysroot: the package servers in /etc/apt have to offer arm64" >&2
    exit 1
fi
for package in "$work"/apt/cache/archives/*.deb; do
    dpkg -x "$package" "$work/root"
done

# Links to absolute names would lead to this machine's files.
find "$work/root" -type l -lname '/*' | while IFS= read -r link; do
    up=$(dirname "${link#"$work/root/"}" | sed 's|[^/][^/]*|..|g')
    ln -snf "$up$(readlink "$link")" "$link"
done

echo "$wanted $headers" >"$work/root/packages"
rm -rf "$folder"
mv "$work/root" "$folder"
rm -rf "$work"
