# The root file system on a volume whose dirty data is on two SSDs: the machine loses one of them and its power, boots
# without it, boots again, and gets another. Which devices the cache has is on record in /boot before anything is served.
OLD=/dev/disk/by-id/virtio-ssd2-part1
NEW=/dev/disk/by-id/virtio-ssd2-part2
put_forebay_before_it() {
    printf 'size=+\n' | sfdisk -q /dev/$SSD2 > /tmp/said 2>&1 || give_up "sfdisk: $(said)"
    check udevadm settle
    check forebay create /dev/disk/by-id/virtio-ssd-part2 $OLD --copies 2
    configure 'device = ["/dev/disk/by-id/virtio-ssd-part2", "'$OLD'"]' 'copies = 2'
    boots_from_volume
}
# What /boot says of the devices that the cache does without.
out_on_record() { grep -o '"out":true' /boot/forebay/*.devices | wc -l; }

loses_an_ssd() {
    is_on_the_volume
    # The initramfs had no place to write to.
    until_is "the devices on record" 1 "ls /boot/forebay/*.devices 2> /dev/null | wc -l"
    same "devices out on record" 0 $(out_on_record)
    left_for_next_life /files/before-loss
    dirty=$(forebay_dirty_bytes $CONTROL)
    [ "$dirty" -gt 1000000 ] || give_up "nothing is dirty: $dirty"
    say "value dirty_bytes_at_loss $dirty"
    # Its partition is not found at the next boot, as if it had been taken out.
    check wipefs -qa --force /dev/$SSD2
    say "done $(now)"
    poweroff -f
}

boots_without_it() {
    is_on_the_volume
    found_again /files/before-loss
    same "devices out on record" 1 $(out_on_record)
    forebay_status $CONTROL | grep -q '"lost": *\[ *{' || give_up "no device is lost: $(forebay_status $CONTROL | cut -c1-300)"
    # An initramfs can be made without it.
    mkinitramfs -o /tmp/initrd $(uname -r) > /tmp/said 2>&1 || give_up "mkinitramfs: $(said)"
    grep -q 'W: forebay: .*ssd2-part1 of root.toml is not there' /tmp/said || give_up "mkinitramfs says: $(said)"
    left_for_next_life /files/alone
    say "done $(now)"
    poweroff -f
}

gets_another() {
    is_on_the_volume
    for file in before-loss alone; do found_again /files/$file; done
    same "devices out on record" 1 $(out_on_record)
    printf 'size=16MiB\nsize=+\n' | sfdisk -q /dev/$SSD2 > /tmp/said 2>&1 || give_up "sfdisk: $(said)"
    check udevadm settle
    # The new partition holds what was on the lost one.
    replace() { forebay cache replace $OLD $NEW --force --control $CONTROL > /tmp/said 2>&1; }
    replace && give_up "replaced, and the next daemon would not know it"
    grep -q "write $NEW there beside" /tmp/said || give_up "cache replace: $(said)"
    sed -i "s|\"$OLD\"|\"$OLD\", \"$NEW\"|" /etc/forebay/root.toml
    make_initramfs
    replace || give_up "cache replace: $(said)"
    same "devices out on record" 0 $(out_on_record)
    # A daemon that takes its place has the list as it was a moment ago.
    kill_daemon /files/in-between
    has_two
    sed -i "s|\"$OLD\", ||" /etc/forebay/root.toml
    check forebay reload --control $CONTROL
    make_initramfs
    left_for_next_life /files/on-both
    kill_daemon /files/after-kill
    has_two
    # Now the other one could go: all dirty data is on both.
    say "done $(now)"
    poweroff -f
}
has_two() { forebay_status $CONTROL | grep -q '"lost": *\[ *\]' || give_up "a device is lost: $(forebay_status $CONTROL | cut -c1-300)"; }

boots_with_both() {
    is_on_the_volume
    for file in before-loss alone in-between on-both after-kill; do found_again /files/$file; done
    same "devices out on record" 0 $(out_on_record)
    has_two
    say "done $(now)"
}

case $LIFE in
1) make_machine && put_forebay_before_it ;;
2) loses_an_ssd ;;
3) boots_without_it ;;
4) gets_another ;;
5) boots_with_both ;;
esac
kernel_complains && fail "$(head -2 /tmp/said)"
:
