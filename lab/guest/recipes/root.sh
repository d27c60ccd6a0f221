# recipes/root.md, from a machine whose system is on a disk, with /boot on the SSD: it gets Forebay before its root as
# the page says, boots with the kernel's arguments that GRUB would give, is shut down in order, and goes back to its disk.
CONTROL=/run/forebay/root.sock
# What GRUB's menu has behind the kernel for the first entry.
arguments_of_grub() { sed -n 's/^[[:space:]]*linux[[:space:]]*[^ ]* //p' /boot/grub/grub.cfg | head -1; }
root_device() { readlink -f "$(findmnt -no SOURCE /)"; }

put_forebay_before_it() {
    same "the root before" $(readlink -f /dev/disk/by-id/ata-DISK-part2) $(root_device)
    block recipes/root.md 1
    sed -i '/ \/ ext4 /d' /etc/fstab
    block recipes/root.md 2 /etc/fstab
    block recipes/root.md 3 /etc/default/grub
    check update-grub
    case $(arguments_of_grub) in *root=/dev/forebay/root*) ;; *) give_up "GRUB would start: $(arguments_of_grub)" ;; esac
    boot_next_with "panic=-1 $(arguments_of_grub)"
}
goes_back() {
    same "the root on a volume" $(readlink -f /dev/forebay/root) $(root_device)
    is_served root
    check systemctl start forebay@root
    same "the service" inactive $(state forebay@root)
    dd if=/dev/urandom of=/old bs=1M count=8 conv=fsync 2> /dev/null
    keep_sum /old
    [ "$(dirty_bytes)" -gt 0 ] || give_up "nothing is dirty"
    block recipes/root.md 4
    # As the page goes on.
    sed -i 's|^/dev/forebay/root|/dev/disk/by-id/ata-DISK-part2|' /etc/fstab
    sed -i '/forebay/d' /etc/default/grub
    rm /etc/forebay/root.toml
    check update-initramfs -u -k all
    check update-grub
    case $(arguments_of_grub) in *forebay*) give_up "GRUB would start: $(arguments_of_grub)" ;; esac
    boot_next_with "panic=-1 root=/dev/disk/by-id/ata-DISK-part2 ro"
}
is_back() {
    same "the root after" $(readlink -f /dev/disk/by-id/ata-DISK-part2) $(root_device)
    same "daemons" "" "$(daemon)"
    found_again /old
}
case $LIFE in
1) install_machine ;;
2) put_forebay_before_it ;;
3) goes_back ;;
4) is_back ;;
esac
kernel_complains && fail "$(head -2 /tmp/said)"
:
