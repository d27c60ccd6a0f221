# recipes/iscsi.md, on a machine of its own: the target is away for a while, the machine is shut down in order and loses
# its power, and boots by itself each time. At last another host has the disk, that is this one without Forebay.
PORTAL=192.0.2.10
TARGET=iqn.2026-11.example:data
BY_PATH=/dev/disk/by-path/ip-$PORTAL:3260-iscsi-$TARGET-lun-1
BEHIND_TARGET=/dev/disk/by-id/virtio-hdd2
WRITTEN="old new while-away while-it-waits before-it-fails while-it-fails before-shutdown"

# The storage of the page: a second disk of this machine, behind a target that is at home before anyone logs in.
make_target() {
    check systemctl stop open-iscsi
    cat > /etc/systemd/system/storage.service <<END
[Unit]
DefaultDependencies=no
Before=network.target network-online.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/ip address add $PORTAL/32 dev lo
[Install]
WantedBy=network-online.target sysinit.target
END
    # A target that was killed stays away until the test has it back.
    mkdir -p /etc/systemd/system/open-iscsi.service.d /etc/systemd/system/forebay@.service.d /etc/systemd/system/tgt.service.d /var/log/journal
    printf '[Service]\nRestart=no\n' > /etc/systemd/system/tgt.service.d/storage.conf
    # An array outlives its clients' shutdown, and so must this one.
    for client in open-iscsi.service forebay@.service; do printf '[Unit]\nAfter=tgt.service\n' > /etc/systemd/system/$client.d/storage.conf; done
    printf '<target %s>\n    backing-store %s\n</target>\n' $TARGET $BEHIND_TARGET > /etc/tgt/conf.d/storage.conf
    check systemctl daemon-reload
    check journalctl --flush
    check systemctl enable --now storage.service tgt.service
}
is_target() { state tgt.service; }
write_file() {
    dd if=/dev/urandom of=/srv/$1 bs=1M count=8 conv=fsync 2> /dev/null || give_up "$1 was not written"
    keep_sum /srv/$1
}

follow_page() {
    put_files $BEHIND_TARGET
    make_target
    install_package
    block recipes/iscsi.md 1
    check systemctl start open-iscsi
    block recipes/iscsi.md 2
    same "the service" active $(state forebay@ssd)
    case " $(systemctl show -P Before forebay@ssd) " in *" local-fs-pre.target "*) give_up "the package's order is in force" ;; esac
    block recipes/iscsi.md 3 /etc/fstab
    check systemctl daemon-reload
    is_served data
    check mount /srv
    found_again /srv/old
    write_file new
}
# With the target killed nobody waits for what is cached or goes into the cache, and write-back waits.
target_away() {
    kill -9 $(pidof tgtd)
    until_is "the target" failed is_target
    write_file while-away
    found_again /srv/new
    timeout 10 forebay drain data > /tmp/said 2>&1 && give_up "a drain to a disk that is away: $(said)"
    write_file while-it-waits
    check systemctl start tgt
    check timeout 120 forebay drain data
    same "dirty bytes after the drain" 0 "$(dirty_bytes)"
}
# An initiator that gives up fails each request, and no client of the cache hears of it.
target_gone() {
    wait=$(echo /sys/class/iscsi_session/session*/recovery_tmo)
    same "how long requests are held" 86400 $(cat $wait)
    echo 2 > $wait
    write_file before-it-fails
    kill -9 $(pidof tgtd)
    until_is "the initiator" gave-up has_given_up
    timeout 10 forebay drain data > /tmp/said 2>&1 && give_up "a drain to a disk that fails: $(said)"
    until_is "a flush of it" failed has_flush_failed
    write_file while-it-fails
    check touch /srv/still-there
    check systemctl start tgt
    until_is "the disk" running "cat /sys/block/$(basename $(readlink -f $BY_PATH))/device/state"
    echo 86400 > $wait
    check timeout 120 forebay drain data
}
has_given_up() { journalctl -b -k -o cat | grep -q 'session recovery timed out' && echo gave-up; }
has_flush_failed() { journalctl -b -o cat -u forebay@ssd | grep -q 'cannot flush' && echo failed; }
booted_by_itself() {
    until_is "the service" active "state forebay@ssd"
    until_is "the disk of the target" there 'test -e $BY_PATH && echo there || { ls -l /dev/disk/by-path; udevadm info --query=all /dev/sda; }'
    until_is "the mount" active "state srv.mount"
    same "the mounted device" $(readlink -f /dev/forebay/data) $(findmnt -no SOURCE /srv)
    for file in "$@"; do found_again /srv/$file; done
    journalctl -b | grep -i 'ordering cycle' > /tmp/said && give_up "$(said)"
    say "value mounted_at_seconds_$LIFE $(awk -v t=$(systemctl show -P ActiveEnterTimestampMonotonic srv.mount) 'BEGIN { print t / 1e6 }')"
}
# The disk was there until the daemon had ended.
stopped_in_order() {
    journalctl -b -1 -o cat -u forebay@ssd > /lab/out/stop
    journalctl -b -1 -k -o cat | grep -E 'I/O error|EXT4-fs error|offline' | grep -v 'dev fd0' > /lab/out/stop-kernel
    grep -q 'Deactivated successfully' /lab/out/stop || give_up "the daemon did not end in order: $(tail -n 4 /lab/out/stop | tr '\n' ' ')"
    journalctl -b -o cat -u forebay@ssd | grep 'not let go in order' > /tmp/said && give_up "the disk was not there at the stop: $(said)"
}

case $LIFE in
1) install_machine ;;
2)
    follow_page
    target_away
    target_gone
    write_file before-shutdown
    [ "$(dirty_bytes)" -gt 1000000 ] || give_up "nothing is dirty: $(dirty_bytes)"
    ;;
3)
    booted_by_itself $WRITTEN
    stopped_in_order
    write_file before-the-cut
    end_life() { poweroff -ff; }
    ;;
4)
    booted_by_itself $WRITTEN before-the-cut
    block recipes/iscsi.md 4
    same "disks of the target" "" "$(ls /dev/disk/by-path | grep $TARGET)"
    check e2fsck -fn $BEHIND_TARGET
    check mount $BEHIND_TARGET /mnt
    for file in $WRITTEN before-the-cut; do found_again /mnt/$file; done
    check umount /mnt
    ;;
esac
:
