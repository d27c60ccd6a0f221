# A machine whose root file system is on a disk and gets Forebay in front of it: for experiments with several lives.
CONTROL=/run/forebay/root.sock
# left_for_next_life FILE: synced, and its sum where the next life finds it
left_for_next_life() {
    dd if=/dev/urandom of=$1 bs=1M count=8 conv=fsync 2> /dev/null
    md5sum < $1 > /lab/sum-$(basename $1)
}
found_again() { same "$1" "$(cat /lab/sum-$(basename $1))" "$(md5sum < $1)"; }

make_initramfs() {
    mkdir -p /lab/boot
    mkinitramfs -o /lab/boot/initrd.new $(uname -r) > /tmp/said 2>&1 || give_up "mkinitramfs: $(said)"
    grep -v '^W:' /tmp/said | grep . && give_up "mkinitramfs: $(said)"
    mv /lab/boot/initrd.new /lab/boot/initrd
    say "value initramfs_bytes $(stat -c %s /lab/boot/initrd)"
}

# What Debian's kernel package brings: the modules where modprobe looks, and the kernel's configuration.
like_a_kernel_package() {
    mkdir -p /lib/modules/$(uname -r)/kernel
    mv /modules/*.ko /lib/modules/$(uname -r)/kernel
    : > /lib/modules/$(uname -r)/modules.builtin
    : > /lib/modules/$(uname -r)/modules.builtin.modinfo
    : > /lib/modules/$(uname -r)/modules.order
    check depmod
    echo CONFIG_RD_GZIP=y > /boot/config-$(uname -r)
    sed -i 's/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=gzip/' /etc/initramfs-tools/initramfs.conf
    printf '%s\n' 9pnet_virtio 9p ext4 > /etc/initramfs-tools/modules
}

# As it is without Forebay: the system on the disk, /boot on a partition of its own.
make_machine() {
    check udevadm settle
    printf 'size=64MiB\nsize=+\n' | sfdisk -q /dev/$SSD > /tmp/said 2>&1 || give_up "sfdisk: $(said)"
    check udevadm settle
    check mkfs.ext4 -q /dev/disk/by-id/virtio-ssd-part1
    check mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/$HDD
    mkdir -p /boot /files
    check mount -t ext4 /dev/disk/by-id/virtio-ssd-part1 /boot
    like_a_kernel_package
    /usr/bin/dpkg -i --force-depends /lab/new/*.deb > /tmp/said 2>&1 || give_up "/usr/bin/dpkg -i: $(said)"
    ln -sf /lib/systemd/systemd /sbin/init
    printf '%s\n' '/dev/forebay/root / ext4 defaults 0 0' '/dev/disk/by-id/virtio-ssd-part1 /boot ext4 defaults 0 0' \
        'lab /lab 9p trans=virtio,version=9p2000.L,msize=262144 0 0' > /etc/fstab
    # A real machine is shut down by its service manager.
    sed -i '/^ExecStopPost/d; s/^\[Unit\]/[Unit]\nSuccessAction=poweroff\nFailureAction=poweroff\nRequiresMountsFor=\/lab/' /etc/systemd/system/lab.service
}

# configure LINE...: the cache that these lines of its section name, before the disk
configure() {
    { echo '[cache]'; printf '%s\n' "$@"; cat <<'END'; } > /etc/forebay/root.toml

[ublk]
enabled = true

[daemon]
initramfs = true
state-dir = "/boot/forebay"

[settings]
age = 86400

[[volume]]
origin = "/dev/disk/by-id/virtio-hdd"
name = "root"
mode = "writeback"
END
}

# boots_from_volume: with the configuration that is there
boots_from_volume() {
    check forebay check-config
    make_initramfs
    echo "root=/dev/forebay/root ro" > /lab/boot/arguments
    check mount -t ext4 /dev/$HDD /mnt
    /usr/bin/tar -cf - --one-file-system -C / . | /usr/bin/tar -xf - -C /mnt || give_up "the system could not be copied"
    check umount /mnt
    check umount /boot
}

# What is true of each boot with Forebay.
is_on_the_volume() {
    say "up $(now)"
    journalctl -f -o short-monotonic -n 1000 > /lab/out/journal-$LIFE 2>&1 &
    case $(awk '$2 == "/" { print $1 }' /proc/mounts) in
    /dev/ublkb0 | /dev/forebay/root) ;;
    *) give_up "the root file system is on $(awk '$2 == "/" { print $1 }' /proc/mounts)" ;;
    esac
    forebay_status $CONTROL | grep -q '"mode": *"writeback"' || give_up "the daemon says: $(forebay_status $CONTROL | cut -c1-200)"
    say "value multi_user_at_seconds $(now)"
}
# daemon WORD: the process of Forebay with that word among its arguments
daemon() {
    for process in /proc/[0-9]*; do
        tr '\0' ' ' < $process/cmdline 2> /dev/null | grep -q "^@forebay $1 " && basename $process
    done
}
# kill_daemon FILE: another takes its place, while the file is written
kill_daemon() {
    before=$(daemon serve)
    [ -n "$before" ] || give_up "no daemon serves"
    kill -9 $before
    left_for_next_life $1
    same "daemons after a kill" 1 $(daemon serve | wc -l)
    [ "$(daemon serve)" != "$before" ] || give_up "the daemon was not replaced"
    say "value daemons_replaced 1"
}
