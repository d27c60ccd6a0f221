# start.md on two real devices, from a disk with a file system on it; and, after the machine has lost its power with dirty
# data, breaks.md from another system, without the daemon.
first_volume() {
    make_partitions
    put_files /dev/sdb
    install_package
    block start.md 1
    is_served data
    found_again /srv/old
    dd if=/dev/urandom of=/srv/new bs=1M count=8 conv=fsync 2> /dev/null
    keep_sum /srv/new
    [ "$(dirty_bytes)" -gt 1000000 ] || give_up "nothing is dirty: $(dirty_bytes)"
}
rescue() {
    install_package
    block breaks.md 1
    check mount /dev/sdb /mnt
    found_again /mnt/old
    found_again /mnt/new
    check umount /mnt
    check e2fsck -fn /dev/sdb
    same "daemons" "" "$(daemon)"
}
case $LIFE in
1) first_volume ;;
2) rescue ;;
esac
kernel_complains && fail "$(head -2 /tmp/said)"
:
