#!/bin/sh
# Installs Forebay from its tarball: ./install.sh, as root. DESTDIR=DIRECTORY installs below that.
# With a .deb or .rpm use that: it restarts caches after an upgrade and refuses a removal in use.
set -eu
cd "$(dirname "$0")"
umask 022
root=${DESTDIR:-}

refuse() {
    echo "install.sh: $1; nothing was changed" >&2
    exit 1
}

if [ -z "$root" ]; then
    [ "$(id -u)" -eq 0 ] || refuse "only root can write to /usr: use sudo, or DESTDIR=DIRECTORY"
    # A package's files are the package manager's.
    if dpkg -S /usr/bin/forebay > /dev/null 2>&1 || rpm -qf /usr/bin/forebay > /dev/null 2>&1; then
        refuse "/usr/bin/forebay belongs to a package: upgrade that, or remove it first"
    fi
fi
is_first=
[ -e "$root/usr/bin/forebay" ] || is_first=1
mkdir -p "$root/usr" "$root/etc/forebay"
# Beside it and then over it: a binary that runs cannot be written to.
cp usr/bin/forebay "$root/usr/forebay.new"
find usr -type d | while read -r directory; do mkdir -p "$root/$directory"; done
find usr -type f ! -path usr/bin/forebay | while read -r file; do cp "$file" "$root/$file"; done
mv "$root/usr/forebay.new" "$root/usr/bin/forebay"
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    udevadm control --reload
    # Without it no enabled cache would start at boot. Enabled with the first installation: whoever
    # disables it means it.
    [ -z "$is_first" ] || systemctl enable --quiet forebay.target
elif [ -n "$is_first" ]; then
    echo "at boot caches start by \`systemctl enable forebay.target\`, once, on the machine that boots"
fi
echo "installed. Begin with /usr/share/doc/forebay/examples/forebay.toml and docs in /usr/share/doc/forebay."
echo "Caches that run are of the old version until \`systemctl restart 'forebay@*'\`, which keeps block devices."
