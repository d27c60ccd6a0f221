# The root file system on a volume: a machine that has been without Forebay gets it in front of its disk, with the
# package's hook in Debian's own initramfs, and boots; the daemon is killed under load; the machine is shut down in order,
# boots, loses its power, boots; and without its cache device it does not boot from a disk that lacks what the cache holds.
put_forebay_before_it() {
    check forebay create /dev/disk/by-id/virtio-ssd-part2
    configure 'device = "/dev/disk/by-id/virtio-ssd-part2"'
    # The hook refuses what could not boot.
    sed 's|/boot/forebay|/var/forebay|' /etc/forebay/root.toml > /etc/forebay/other.toml
    mkinitramfs -o /tmp/initrd $(uname -r) > /tmp/said 2>&1 && give_up "an initramfs was made whose state directory is on the root file system"
    grep -q 'other.toml is on the root file system' /tmp/said || give_up "mkinitramfs: $(said)"
    rm /etc/forebay/other.toml
    boots_from_volume
}

first_boot() {
    is_on_the_volume
    # The unit of that name has nothing to do.
    check systemctl start forebay@root
    same "the service" inactive $(state forebay@root)
    fio --name=verified --directory=/files --rw=randwrite --bsrange=4k-64k --iodepth=8 --size=16m --ioengine=libaio --direct=1 \
        --fsync=16 --verify=crc32c --verify_fatal=1 --loops=100000 --output=/tmp/fio > /dev/null 2>&1 &
    fio=$!
    for round in 1 2 3; do
        sleep 1
        kill_daemon /files/after-kill-$round
    done
    kill -0 $fio || give_up "fio ended with a kill: $(tail -3 /tmp/fio | tr '\n' ' ')"
    # It would be the end of the machine, and so it is replaced as well.
    before=$(daemon serve)
    check forebay stop --keep-devices --control $CONTROL
    left_for_next_life /files/after-stop
    [ "$(daemon serve)" != "$before" ] && forebay_status $CONTROL > /dev/null || give_up "no other daemon after a stop"
    # Paths lead into the root file system: what is asked of a daemon can need some.
    sed -i 's/age = 86400/age = 80000/' /etc/forebay/root.toml
    check forebay reload --control $CONTROL
    grep -q 'settings: in force' /tmp/said || give_up "reload: $(said)"
    forebay rename root other --control $CONTROL > /tmp/said 2>&1 && give_up "renamed, and the next daemon would not know it"
    kill -INT $fio
    wait $fio
    grep -q "err= 0" /tmp/fio || fail "fio: $(grep -m1 err= /tmp/fio)"
    dirty=$(forebay_dirty_bytes $CONTROL)
    [ "$dirty" -gt 1000000 ] || give_up "nothing is dirty: $dirty"
    say "value dirty_bytes_at_power_off $dirty"
    say "done $(now)"
}

boot_after_power_off() {
    is_on_the_volume
    for file in after-kill-1 after-kill-2 after-kill-3 after-stop; do found_again /files/$file; done
    dmesg | grep -iE "EXT4-fs.*(recover|orphan)" > /tmp/said && fail "not shut down in order: $(head -1 /tmp/said)"
    left_for_next_life /files/before-cut
    say "done $(now)"
    poweroff -f
}

boot_after_cut() {
    is_on_the_volume
    for file in after-kill-1 after-stop before-cut; do found_again /files/$file; done
    # As if the cache device had been taken out. The initramfs's shell, which a person would have, tells the lab.
    mv /dev/disk/by-id/virtio-ssd-part2 /tmp
    mkinitramfs -o /tmp/initrd $(uname -r) > /tmp/said 2>&1 && give_up "an initramfs was made for a cache that is not there"
    mv /tmp/virtio-ssd-part2 /dev/disk/by-id
    mkdir -p /etc/initramfs-tools/scripts/panic
    cat > /etc/initramfs-tools/scripts/panic/lab <<'END'
#!/bin/sh
[ "$1" = prereqs ] && exit 0
echo "@lab up 1"
grep -q ' /root ' /proc/mounts && echo "@lab failed the root file system is mounted"
[ -e /dev/forebay/root ] && echo "@lab failed there is a volume"
echo "@lab value stopped_without_cache 1"
echo "@lab done 1"
poweroff -f
END
    chmod +x /etc/initramfs-tools/scripts/panic/lab
    make_initramfs
    # After it was made: as when the device is not found at boot.
    check wipefs -qa --force /dev/$SSD
    say "done $(now)"
    poweroff -f
}

case $LIFE in
1) make_machine && put_forebay_before_it ;;
2) first_boot ;;
3) boot_after_power_off ;;
4) boot_after_cut ;;
esac
kernel_complains && fail "$(head -2 /tmp/said)"
:
