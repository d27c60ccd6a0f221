#!/usr/bin/env bash
# Builds the .deb from a static binary: no network, and the same bytes from the same commit.
#     packaging/build-deb.sh BINARY OUTPUT-DIRECTORY [VERSION]
# DEBFULLNAME and DEBEMAIL name the maintainer, as with Debian's own tools. COMPRESSION: xz, gzip.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=$(realpath "$1")
output=$2
version=${3:-$("$binary" --version | cut -d' ' -f2)}
architecture=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-the authors of Forebay} <${DEBEMAIL:-forebay@localhost}>"
. packaging/epoch.sh

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
umask 022

ZSH_COMPLETIONS=usr/share/zsh/vendor-completions packaging/install-files.sh "$root" "$binary"
install -d "$root/etc/forebay"

# Debian's own form, which apt-listchanges and others read; the changes themselves are in CHANGELOG.md.
gzip -9n > "$root/usr/share/doc/forebay/changelog.gz" << END
forebay ($version) unstable; urgency=medium

  * Version $version. Its changes: /usr/share/doc/forebay/CHANGELOG.md.gz

 -- $maintainer  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END
cat > "$root/usr/share/doc/forebay/copyright" << END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: forebay

Files: *
Copyright: the authors of Forebay
License: Apache-2.0 or MIT
 The Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.
 .
$(sed 's/^$/./; s/^/ /' LICENSE-MIT)

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
Maintainer: $maintainer
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Section: admin
Priority: optional
Recommends: udev
$(sed -n '1s/^/Description: /p; 2,$s/^/ /p' packaging/description)
END
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums)

mkdir -p "$output"
package="$output/forebay_${version}_$architecture.deb"
dpkg-deb --root-owner-group "-Z${COMPRESSION:-xz}" --build "$root" "$package" > /dev/null
echo "$package"
