#!/usr/bin/env bash
# Builds all that is published, from a static binary: tarball, .deb, .rpm, and their checksums.
#     packaging/build-dist.sh BINARY OUTPUT-DIRECTORY [VERSION]
# The same bytes from the same commit. Without dpkg-deb or rpmbuild that package is left out, aloud.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=$(realpath "$1")
mkdir -p "$2"
output=$(realpath "$2")
version=${3:-$("$binary" --version | cut -d' ' -f2)}
name=forebay-$version-$(uname -m)-linux
. packaging/epoch.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
rm -f "$output"/forebay[-_]*.{tar.gz,deb,rpm} "$output/SHA256SUMS"

tree=$work/$name
mkdir "$tree"
packaging/install-files.sh "$tree" "$binary"
install -m 644 -t "$tree" README.md LICENSE-APACHE LICENSE-MIT
install -m 644 crates/cli/src/daemon/observe/http/assets/uPlot.LICENSE "$tree/LICENSE-uPlot"
install -m 755 packaging/install.sh "$tree/install.sh"
install -D -m 644 -t "$tree/container" packaging/container/Containerfile
# To try it where it was unpacked.
ln -s usr/bin/forebay "$tree/forebay"
tar --create --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    --directory "$work" "$name" | gzip -9n > "$output/$name.tar.gz"
echo "$output/$name.tar.gz"

for format in deb:dpkg-deb rpm:rpmbuild; do
    if command -v "${format#*:}" > /dev/null; then
        "packaging/build-${format%:*}.sh" "$binary" "$output" "$version"
    else
        echo "build-dist.sh: no .${format%:*}: ${format#*:} is not installed" >&2
    fi
done
(cd "$output" && sha256sum -- forebay[-_]*.{tar.gz,deb,rpm} 2> /dev/null > SHA256SUMS || true)
[ -s "$output/SHA256SUMS" ]
echo "$output/SHA256SUMS"
