# recipes/mdadm.md, from an array in use: served by its service, mounted by the line of fstab, restarted and killed under
# a mounted file system, and given back.
make_partitions
check mdadm --create /dev/md0 --run --level 5 --assume-clean --raid-devices 3 $(for serial in hdd hdd2 hdd3; do echo /dev/disk/by-id/virtio-$serial; done)
check udevadm settle
put_files /dev/md0
check mount /dev/md0 /srv
install_package

block recipes/mdadm.md 1
same "the service" active $(state forebay@ssd)
same "the service at the next boot" enabled $(systemctl is-enabled forebay@ssd)
is_served srv
forebay status | grep -q 'stripe of the origin: 1 MiB' || fail "no stripe is shown: $(forebay status | tr '\n' ' ')"
members_shown() { forebay status | grep -c '^    .* % busy, .* in flight, reads '; }
until_is "members of the array in the status" 3 members_shown
block recipes/mdadm.md 2 /etc/fstab
check systemctl daemon-reload
check mount /srv
same "the mounted device" $(readlink -f /dev/forebay/srv) $(findmnt -no SOURCE /srv)
found_again /srv/old
dd if=/dev/urandom of=/srv/new bs=1M count=8 conv=fsync 2> /dev/null
keep_sum /srv/new

# daemon_after PID: whether the service runs with another one
daemon_after() { [ "$(state forebay@ssd)" = active ] && [ "$(systemctl show -P MainPID forebay@ssd)" != $1 ] && echo yes; }
# changed_by COMMAND...: another daemon serves, and who uses the file system sees nothing of it
changed_by() {
    before=$(daemon)
    check "$@"
    until_is "another daemon after $*" yes "daemon_after $before"
    echo 3 > /proc/sys/vm/drop_caches
    found_again /srv/old
    found_again /srv/new
}
changed_by systemctl restart forebay@ssd
changed_by kill -9 $(daemon)

# As the page says under "Back".
check umount /srv
check forebay detach srv
check systemctl disable --now forebay@ssd
check e2fsck -fn /dev/md0
check mount /dev/md0 /mnt
found_again /mnt/old
found_again /mnt/new
kernel_complains && fail "$(head -2 /tmp/said)"
:
