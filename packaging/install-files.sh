#!/usr/bin/env bash
# The files of a package, below a directory: one list for .deb, .rpm and tarball.
#     packaging/install-files.sh DIRECTORY BINARY
# ZSH_COMPLETIONS: where zsh of that system looks (Debian: usr/share/zsh/vendor-completions).
set -euo pipefail
cd "$(dirname "$0")/.."
root=$1
binary=$(realpath "$2")
umask 022

install -D -s "$binary" "$root/usr/bin/forebay"
install -D -m 644 -t "$root/usr/lib/systemd/system" packaging/systemd/forebay*
install -D -m 644 -t "$root/usr/lib/systemd/system/forebay@.service.d" packaging/systemd/order.conf
install -D -m 644 -t "$root/usr/share/forebay" packaging/systemd/order-network.conf
install -D -m 644 -t "$root/usr/lib/udev/rules.d" packaging/udev/*
install -D -m 755 packaging/initramfs/hook "$root/usr/share/initramfs-tools/hooks/forebay"
install -D -m 755 packaging/initramfs/local-top "$root/usr/share/initramfs-tools/scripts/local-top/forebay"
install -D -m 644 -t "$root/usr/share/doc/forebay/examples" packaging/forebay.toml
install -D -m 644 -t "$root/usr/share/doc/forebay" README.md docs/commands.md docs/operations.md docs/metrics.md docs/dashboard.md docs/MODEL.md docs/FORMAT.md
# The manual as text; its reference is the documents themselves.
install -d "$root/usr/share/doc/forebay/manual"
cp -r --no-preserve=mode,ownership,timestamps manual/src/. "$root/usr/share/doc/forebay/manual"
cp -r --no-preserve=mode,ownership,timestamps docs/*.md docs/migrate "$root/usr/share/doc/forebay/manual/reference"
gzip -9nc CHANGELOG.md > "$root/usr/share/doc/forebay/CHANGELOG.md.gz"
install -D -m 644 -t "$root/usr/share/forebay/prometheus" packaging/prometheus/*

install -d "$root/usr/share/forebay/grafana"
"$binary" packaging grafana > "$root/usr/share/forebay/grafana/forebay.json"
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
"$binary" packaging man "$made/man"
gzip -9n "$made"/man/*
install -D -m 644 -t "$root/usr/share/man/man8" "$made"/man/*.8.gz
install -D -m 644 -t "$root/usr/share/man/man5" "$made"/man/*.5.gz
"$binary" packaging completions "$made/completions"
install -D -m 644 "$made/completions/bash/forebay" "$root/usr/share/bash-completion/completions/forebay"
install -D -m 644 "$made/completions/zsh/_forebay" "$root/${ZSH_COMPLETIONS:-usr/share/zsh/site-functions}/_forebay"
install -D -m 644 "$made/completions/fish/forebay.fish" "$root/usr/share/fish/vendor_completions.d/forebay.fish"
