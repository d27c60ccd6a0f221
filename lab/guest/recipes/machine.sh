# A machine whose system is on its disk, with /boot on the SSD, for recipes that boot it: it is shut down in order.
# With its service manager, as any machine; the next life begins with what /boot has.
end_life() { systemctl --no-block poweroff; }
boot_next_with() {
    mkdir -p /lab/boot
    cp /boot/initrd.img-$(uname -r) /lab/boot/initrd
    echo "$1" > /lab/boot/arguments
}
# The lab's Debian, put onto the disk as an installer would: the second partition is its root.
install_machine() {
    make_partitions
    printf 'label: gpt\nsize=8MiB\nsize=+\n' | sfdisk -q /dev/disk/by-id/ata-DISK > /tmp/said 2>&1 || give_up "sfdisk: $(said)"
    check udevadm settle
    check mkfs.ext4 -q /dev/disk/by-id/nvme-SSD-part1
    check mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/disk/by-id/ata-DISK-part2
    check mount /dev/disk/by-id/ata-DISK-part2 /mnt
    # Nobody reads in it, or installs from a mirror.
    tar -cf - --one-file-system --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale \
        --exclude=./var/cache --exclude=./var/lib/apt/lists -C / . | tar -xf - -C /mnt || give_up "the system could not be copied"
    mkdir -p /mnt/var/cache/apt/archives/partial /mnt/var/lib/apt/lists/partial
    check mount /dev/disk/by-id/nvme-SSD-part1 /media
    mv /mnt/boot/* /media
    mkdir /media/grub
    check umount /media
    printf '%s\n' '/dev/disk/by-id/ata-DISK-part2 / ext4 errors=remount-ro 0 1' '/dev/disk/by-id/nvme-SSD-part1 /boot ext4 defaults 0 2' > /mnt/etc/fstab
    grep '^lab ' /etc/fstab >> /mnt/etc/fstab
    cp /lab/package/forebay_*.deb /mnt/root
    check umount /mnt
    boot_next_with "panic=-1 root=/dev/disk/by-id/ata-DISK-part2 ro"
}
