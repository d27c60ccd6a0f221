#!/usr/bin/env bash
# Builds the .deb from a static binary: no network, and the same bytes from the same commit.
#     packaging/build-deb.sh BINARY OUTPUT-DIRECTORY [VERSION]
set -euo pipefail
cd "$(dirname "$0")/.."
binary=$(realpath "$1")
output=$2
version=${3:-$("$binary" --version | cut -d' ' -f2)}
architecture=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || echo 0)}
export SOURCE_DATE_EPOCH

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
umask 022

install -D -s "$binary" "$root/usr/bin/forebay"
install -D -m 644 -t "$root/lib/systemd/system" packaging/systemd/*
install -D -m 644 -t "$root/lib/udev/rules.d" packaging/udev/*
install -D -m 755 packaging/initramfs/hook "$root/usr/share/initramfs-tools/hooks/forebay"
install -D -m 755 packaging/initramfs/local-top "$root/usr/share/initramfs-tools/scripts/local-top/forebay"
install -D -m 644 -t "$root/usr/share/doc/forebay/examples" packaging/forebay.toml
install -D -m 644 -t "$root/usr/share/doc/forebay" README.md docs/commands.md docs/operations.md docs/metrics.md docs/dashboard.md docs/MODEL.md docs/FORMAT.md
# The manual as text; its reference is the documents themselves.
install -d "$root/usr/share/doc/forebay/manual"
cp -r --no-preserve=mode,ownership,timestamps manual/src/. "$root/usr/share/doc/forebay/manual"
cp -r --no-preserve=mode,ownership,timestamps docs/*.md docs/migrate "$root/usr/share/doc/forebay/manual/reference"
install -D -m 644 -t "$root/usr/share/forebay/prometheus" packaging/prometheus/*
install -d "$root/etc/forebay"

install -d "$root/usr/share/forebay/grafana"
"$binary" packaging grafana > "$root/usr/share/forebay/grafana/forebay.json"
"$binary" packaging man "$root/man"
install -D -m 644 -t "$root/usr/share/man/man8" "$root"/man/*.8
install -D -m 644 -t "$root/usr/share/man/man5" "$root"/man/*.5
rm -r "$root/man"
"$binary" packaging completions "$root/completions"
install -D -m 644 "$root/completions/bash/forebay" "$root/usr/share/bash-completion/completions/forebay"
install -D -m 644 "$root/completions/zsh/_forebay" "$root/usr/share/zsh/vendor-completions/_forebay"
install -D -m 644 "$root/completions/fish/forebay.fish" "$root/usr/share/fish/vendor_completions.d/forebay.fish"
rm -r "$root/completions"
gzip -9n "$root"/usr/share/man/man[58]/*
gzip -9nc CHANGELOG.md > "$root/usr/share/doc/forebay/changelog.gz"
cat > "$root/usr/share/doc/forebay/copyright" << END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: forebay

Files: *
Copyright: the authors of Forebay
License: Apache-2.0 or MIT
 The Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.

Files: usr/bin/forebay
Copyright: uPlot, part of the dashboard in it: Leon Sorokin
License: MIT
$(sed 's/^$/./; s/^/ /' crates/cli/src/daemon/observe/http/assets/uPlot.LICENSE)
END

install -d "$root/DEBIAN"
install -m 755 -t "$root/DEBIAN" packaging/debian/{postinst,prerm,postrm}
cat > "$root/DEBIAN/control" << END
Package: forebay
Version: $version
Architecture: $architecture
Maintainer: the authors of Forebay <forebay@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Section: admin
Priority: optional
Recommends: udev
Description: SSD cache for slow block storage, in user space
 Puts a fast device in front of a hard disk, an array or a network volume
 and gives it the fast one's speed: no kernel module, no reformatting. What
 was flushed survives a power cut; what was acknowledged survives a killed
 daemon. Volumes are block devices (/dev/forebay/NAME) or NBD exports.
END
(cd "$root" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums)

mkdir -p "$output"
package="$output/forebay_${version}_$architecture.deb"
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" > /dev/null
echo "$package"
