#!/usr/bin/env bash
# Builds the .rpm from a static binary: no network, and the same bytes from the same commit.
#     packaging/build-rpm.sh BINARY OUTPUT-DIRECTORY [VERSION]
# COMPRESSION: xz, gzip.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v rpmbuild > /dev/null || { echo "build-rpm.sh: rpmbuild is not there: install the package rpm (Debian) or rpm-build" >&2; exit 1; }
binary=$(realpath "$1")
mkdir -p "$2"
output=$(realpath "$2")
version=${3:-$("$binary" --version | cut -d' ' -f2)}
. packaging/epoch.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

# The scripts of the Debian package, told in its words what happens. `%` begins a macro of rpm.
script() { sed '1d; s/%/%%/g' "packaging/debian/$1"; }
{
    printf '%%global version %s\n' "$version"
    cat packaging/forebay.spec
    printf '\n%%description\n'
    sed 1d packaging/description
    printf '\n%%post\nset -- configure\n%s\n' "$(script postinst)"
    printf '\n%%preun\n[ "$1" -eq 0 ] && set -- remove || set -- upgrade\n%s\n' "$(script prerm)"
    printf '\n%%postun\n[ "$1" -eq 0 ] && set -- remove || set -- upgrade\n%s\n' "$(script postrm)"
} > "$work/forebay.spec"

case ${COMPRESSION:-xz} in
xz) payload=w6.xzdio ;;
gzip) payload=w1.gzdio ;;
*) echo "build-rpm.sh: COMPRESSION is xz or gzip" >&2; exit 1 ;;
esac
# Paths are given, not those of the system that builds: they differ between distributions.
rpmbuild -bb --quiet --define "_topdir $work" --define "_rpmdir $work/rpms" --define "_source_tree $PWD" \
    --define "_binary $binary" --define "_binary_payload $payload" --define "_buildhost localhost" \
    --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" \
    --define "_build_id_links none" --define "_prefix /usr" "$work/forebay.spec"
for package in "$work"/rpms/*/*.rpm; do
    mv "$package" "$output/"
    echo "$output/${package##*/}"
done
