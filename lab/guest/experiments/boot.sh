# The machine boots with a file system on a volume in /etc/fstab: after a power cut with dirty data, beside a cache whose
# device is missing, and with its own cache device missing. What a boot finds of the package and its configuration is put
# into the guest before systemd starts (/lab/boot.sh), as the guest's root does not outlive it.
# Full paths where the shell has a program of its own of that name.
active_since() { systemctl show -P ActiveEnterTimestampMonotonic $1; }
trouble() { journalctl -o cat -n 8 -u forebay@ssd | tr '\n' ' ' | tail -c 600; }
journalctl -f -o short-monotonic -n 1000 > /lab/out/journal-$LIFE 2>&1 &

make_cache() {
    check udevadm settle
    /usr/bin/dpkg -i --force-depends /lab/new/*.deb > /tmp/said 2>&1 || give_up "/usr/bin/dpkg -i: $(tail -c 600 /tmp/said | tr '\n' ' ')"
    check forebay create /dev/$SSD
    printf '[cache]\ndevice = "/dev/%s"\n[ublk]\nenabled = true\n[settings]\nage = 86400\n[[volume]]\norigin = "/dev/%s"\nname = "data"\nmode = "writeback"\n' $SSD $HDD > /etc/forebay/ssd.toml
    printf '[cache]\ndevice = "/dev/missing"\n[ublk]\nenabled = true\n[[volume]]\norigin = "/dev/other"\n' > /etc/forebay/gone.toml
    check systemctl enable forebay@ssd forebay@gone
    check systemctl start forebay@ssd
    until_is "the block device" /dev/forebay/data "ls /dev/forebay/data"
    check mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/forebay/data
    mkdir -p /srv
    check mount -t ext4 /dev/forebay/data /srv
    dd if=/dev/urandom of=/srv/file bs=1M count=8 conv=fsync 2> /dev/null
    md5sum < /srv/file > /lab/sum
    echo "/dev/forebay/data /srv ext4 defaults,nofail 0 0" > /etc/fstab
    dirty=$(forebay_dirty_bytes /run/forebay/ssd.sock)
    [ "$dirty" -gt 1000000 ] || give_up "nothing is dirty: $dirty"
    save_root
    cat > /lab/boot.sh <<'END'
dpkg-deb -x /lab/new/*.deb /
mkdir -p /srv
/usr/bin/tar -xf /lab/root.tar -C /
END
    say "value dirty_bytes_at_the_cut $dirty"
}
save_root() { check /usr/bin/tar -cf /lab/root.tar -C / etc/forebay etc/fstab etc/systemd/system; }

boot_after_cut() {
    until_is "the service" active "state forebay@ssd"
    until_is "the mount" active "state srv.mount"
    same "the file" "$(cat /lab/sum)" "$(md5sum < /srv/file)"
    [ $(active_since forebay@ssd) -le $(active_since local-fs-pre.target) ] || fail "the cache came after local-fs-pre.target"
    [ $(active_since forebay@ssd) -le $(active_since srv.mount) ] || fail "the mount came before the cache"
    [ "$(state forebay@gone)" != active ] || fail "a cache without its device has started"
    say "value mounted_at_seconds $(awk -v t=$(active_since srv.mount) 'BEGIN { print t / 1e6 }')"
    say "value multi_user_at_seconds $(now)"
    sed -i "s|/dev/$SSD|/dev/not-there|" /etc/forebay/ssd.toml
    save_root
    check systemctl stop srv.mount
    check systemctl stop forebay@ssd
}

boot_without_cache_device() {
    # That this runs is the first thing to see: the boot did not wait.
    say "value multi_user_at_seconds $(now)"
    [ "$(state forebay@ssd)" != active ] || fail "a cache without its device has started"
    same "the mount" "" "$(awk '$2 == "/srv"' /proc/mounts)"
    same "files in its place" "" "$(ls /srv)"
    sed -i "s|/dev/not-there|/dev/$SSD|" /etc/forebay/ssd.toml
    # As when the device is found at last: the service's next attempt takes it.
    until_is "the service" active "state forebay@ssd"
    check systemctl start srv.mount
    same "the file" "$(cat /lab/sum)" "$(md5sum < /srv/file)"
    say "value came_by_itself 1"
}

case $LIFE in
1) make_cache ;;
2) boot_after_cut ;;
3) boot_without_cache_device ;;
esac
kernel_complains && fail "$(head -2 /tmp/said)"
:
