# The Debian package under systemd: installed; a cache served as a service; upgraded and restarted under a mounted,
# loaded ext4; removal refused while there is dirty data or somebody uses the device; drained, removed, purged.
# Full paths where the shell has a program of its own of that name.
trouble() { journalctl -o cat -n 12 -u forebay@ssd | tr '\n' ' ' | tail -c 900; }
install() { /usr/bin/dpkg -i --force-depends /lab/$1/*.deb > /tmp/said 2>&1; }
journalctl -f -o short-monotonic -n 1000 > /lab/out/journal 2>&1 &
udevadm settle
install old || give_up "/usr/bin/dpkg -i: $(tail -c 600 /tmp/said | tr '\n' ' ')"
say "value installed_seconds $(now)"
[ -e /usr/share/man/man8/forebay-serve.8.gz ] && [ -e /usr/share/bash-completion/completions/forebay ] || fail "no manual, or no completions"
check systemd-analyze verify --man=no /usr/lib/systemd/system/forebay.target forebay@ssd.service

# A device that is missing fails at once, and nothing waits for it but its own next attempt.
printf '[cache]\ndevice = "/dev/missing"\n[ublk]\nenabled = true\n[[volume]]\norigin = "/dev/%s"\nname = "data"\n' $HDD > /etc/forebay/gone.toml
began=$(now)
systemctl start forebay@gone 2> /dev/null && fail "a cache without its device has started"
say "value missing_device_seconds $(awk -v a=$began -v b=$(now) 'BEGIN { print b - a }')"
systemctl stop forebay@gone
rm /etc/forebay/gone.toml

# A wrong file is refused with its line.
printf '[cache]\ndevise = "/dev/x"\n[[volume]]\norigin = "/dev/y"\n' > /etc/forebay/ssd.toml
forebay check-config > /tmp/said 2>&1
same "the exit code of check-config" 2 $?
grep -q 'line 2: .*did you mean `device`' /tmp/said || fail "check-config: $(cat /tmp/said)"

printf '[cache]\ndevice = "/dev/%s"\ncreate = true\n[ublk]\nenabled = true\n[settings]\nage = 86400\ndirty-low = 50\n[[volume]]\norigin = "/dev/%s"\nname = "data"\nmode = "writeback"\n' $SSD $HDD > /etc/forebay/ssd.toml
check forebay check-config
check systemctl enable --now forebay@ssd
same "the service" active $(state forebay@ssd)
wait_for /dev/forebay/data
check udevadm settle
same "the link is udev's" ../ublkb0 $(readlink /dev/forebay/data)
TARGET=/dev/forebay/data
check mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 $TARGET
check udevadm settle
mkdir -p /files
# By way of systemd's unit for the device, which udev's link gives it.
mkdir -p /run/systemd/system
printf '[Unit]\n[Mount]\nWhat=/dev/forebay/data\nWhere=/files\nType=ext4\n' > /run/systemd/system/files.mount
check systemctl daemon-reload
check systemctl start files.mount
same "the mount" ext4 $(awk '$2 == "/files" { print $3 }' /proc/mounts)
say "value served_and_mounted_seconds $(now)"

fio --name=verified --directory=/files --rw=randwrite --bsrange=4k-64k --iodepth=8 --size=16m --ioengine=libaio --direct=1 \
    --fsync=16 --verify=crc32c --verify_fatal=1 --loops=100000 --output=/tmp/fio > /dev/null 2>&1 &
FIO=$!
sleep 1

# The unit's restrictions take nothing away that the daemon can do without, but would rather not.
journalctl -o cat -u forebay@ssd | grep -E 'could not be pinned|wait for its own devices|could not be told|udev is not told|could not be made' > /tmp/said &&
    fail "$(head -2 /tmp/said | tr '\n' ' ')"

# What can change live does, and what cannot is named.
sed -i 's/dirty-low = 50/dirty-low = 40/; s/^create = true/create = false/' /etc/forebay/ssd.toml
check forebay reload --control /run/forebay/ssd.sock
grep -q 'settings: in force' /tmp/said && grep -q '\[cache\]: needs a restart' /tmp/said || fail "reload: $(cat /tmp/said)"
check systemctl reload forebay@ssd

# As an earlier package left it, which had one service for all caches.
check systemctl disable forebay@ssd
mkdir -p /etc/systemd/system/forebay.target.wants
ln -s /lib/systemd/system/forebay.service /etc/systemd/system/forebay.target.wants/forebay.service
before=$(systemctl show -P MainPID forebay@ssd)
began=$(now)
install new || give_up "the upgrade: $(tail -c 600 /tmp/said | tr '\n' ' ') $(journalctl -o cat -n 20 -u forebay@ssd | tail -c 800 | tr '\n' ' ')"
say "value upgrade_seconds $(awk -v a=$began -v b=$(now) 'BEGIN { print b - a }')"
same "the version" 1.1 $(dpkg-query -W -f '${Version}' forebay)
[ "$before" != "$(systemctl show -P MainPID forebay@ssd)" ] ||
    fail "the upgrade did not restart the daemon: $(tail -c 400 /tmp/said | tr '\n' ' ') $(journalctl -o cat -n 20 -u forebay@ssd | tail -c 800 | tr '\n' ' ')"
same "the service after the upgrade" active $(state forebay@ssd)
same "the service at the next boot" enabled "$(systemctl is-enabled forebay@ssd)"
[ ! -L /etc/systemd/system/forebay.target.wants/forebay.service ] || fail "the service for all is enabled still"
kill -0 $FIO || give_up "fio ended with the upgrade: $(tail -3 /tmp/fio | tr '\n' ' ')"
check systemctl restart forebay@ssd
sleep 1
kill -0 $FIO || give_up "fio ended with the restart: $(tail -3 /tmp/fio | tr '\n' ' ')"
say "value restarts_under_load 2"

# A daemon that is killed, or does not turn any more, is replaced without anyone's help.
comes_back() {
    tries=0
    until [ "$(state forebay@ssd)" = active ] && [ "$(systemctl show -P MainPID forebay@ssd)" != $2 ]; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || give_up "not started again after $1: $(systemctl show -P SubState forebay@ssd)"
        sleep 0.1
    done
    sleep 1
    kill -0 $FIO || give_up "fio ended with $1: $(tail -3 /tmp/fio | tr '\n' ' ')"
    say "value came_back 1"
}
pid=$(systemctl show -P MainPID forebay@ssd)
kill -9 $pid
comes_back "a kill" $pid
mkdir -p /run/systemd/system/forebay@ssd.service.d
printf '[Service]\nWatchdogSec=5\n' > /run/systemd/system/forebay@ssd.service.d/watchdog.conf
check systemctl daemon-reload
check systemctl restart forebay@ssd
pid=$(systemctl show -P MainPID forebay@ssd)
sleep 7
same "a daemon that turns" $pid $(systemctl show -P MainPID forebay@ssd)
kill -STOP $pid
comes_back "a halt" $pid
same "why it was ended" 1 "$(journalctl -o cat -u forebay@ssd | grep -c 'Watchdog timeout')"
rm -r /run/systemd/system/forebay@ssd.service.d
# The next daemon has the unit's own time again, also when the machine is as busy as this one.
check systemctl daemon-reload
check systemctl restart forebay@ssd

/usr/bin/dpkg -r forebay > /tmp/said 2>&1 && give_up "removed while mounted and dirty"
grep -q 'not on its disk' /tmp/said && grep -q 'take it out of use' /tmp/said || fail "/usr/bin/dpkg -r: $(tail -c 500 /tmp/said | tr '\n' ' ')"
same "the service after a refused removal" active $(state forebay@ssd)
same "the package after a refused removal" installed "$(dpkg-query -W -f '${db:Status-Status}' forebay)"
kill -0 $FIO || give_up "fio ended with the refused removal"
kill -INT $FIO
wait $FIO
grep -q "err= 0" /tmp/fio || fail "fio: $(grep -m1 err= /tmp/fio)"
dd if=/dev/urandom of=/files/big bs=1M count=16 conv=fsync 2> /dev/null
sum=$(md5sum < /files/big)
check systemctl stop files.mount

# The disk has the file system, but not what is written to it last.
check forebay drain data
check systemctl start files.mount
echo newer > /files/newer
sync
check systemctl stop files.mount

# Nobody uses it, but it is dirty; so it is when the service is stopped.
/usr/bin/dpkg -r forebay > /tmp/said 2>&1 && give_up "removed while dirty"
check systemctl stop forebay@ssd
same "block devices after a stop" "" "$(ls /dev | grep ublkb)"
same "the link after a stop" "" "$(ls /dev/forebay 2> /dev/null)"

# Nobody finds the disk by what is on it, while its volume is not served.
check udevadm settle
uuid=$(blkid -p -o value -s UUID /dev/$HDD)
[ -n "$uuid" ] || fail "the disk has no file system of its own"
same "the disk by its UUID" "" "$(ls /dev/disk/by-uuid | grep "$uuid")"
same "the type of the disk" forebay_origin "$(udevadm info -q property --property=ID_FS_TYPE --value /dev/$HDD)"
same "the type of the cache" forebay "$(lsblk -no FSTYPE /dev/$SSD)"
mkdir -p /stale
printf '[Unit]\n[Mount]\nWhat=/dev/disk/by-uuid/%s\nWhere=/stale\nType=ext4\n' "$uuid" > /run/systemd/system/stale.mount
check systemctl daemon-reload
timeout 15 systemctl start stale.mount 2> /dev/null && fail "the disk was mounted by its UUID without what the cache holds"
systemctl stop stale.mount 2> /dev/null
check systemctl start forebay@ssd
wait_for /dev/forebay/data
check udevadm settle
same "the volume by its UUID" ublkb0 "$(basename "$(readlink /dev/disk/by-uuid/$uuid)")"
check systemctl start stale.mount
same "what was written last" newer "$(cat /stale/newer)"
check systemctl stop stale.mount
check systemctl stop forebay@ssd
say "value stale_disk_hidden 1"
/usr/bin/dpkg -r forebay > /tmp/said 2>&1 && give_up "removed while stopped and dirty"
grep -q 'holds .* of volume data that are not on its disk' /tmp/said || fail "/usr/bin/dpkg -r: $(tail -c 500 /tmp/said | tr '\n' ' ')"
say "value removals_refused 3"

# The same cache, and one whose device is missing, by the target that is all of them.
printf '[cache]\ndevice = "/dev/missing"\n[ublk]\nenabled = true\n[[volume]]\norigin = "/dev/other"\n' > /etc/forebay/gone.toml
check systemctl enable forebay@gone
check systemctl start forebay.target
until_is "the service" active "state forebay@ssd"
[ "$(state forebay@gone)" != active ] || fail "a cache without its device has started"
wait_for /dev/forebay/data
check systemctl start files.mount
same "the file" "$sum" "$(md5sum < /files/big)"
pid=$(systemctl show -P MainPID forebay@ssd)
check systemctl restart forebay.target
until_is "the service after a restart of all" active "state forebay@ssd"
[ "$(systemctl show -P MainPID forebay@ssd)" != $pid ] || fail "a restart of all restarts none"
same "the file after a restart" "$sum" "$(md5sum < /files/big)"
check systemctl disable --now forebay@gone
rm /etc/forebay/gone.toml
check systemctl stop files.mount
say "value all_caches 1"

# A program with all privileges of root has the device open: the service does not see it, the command does.
sleep 600 < /dev/forebay/data &
other=$!
refused "open in sleep" forebay detach data
refused "open in sleep" forebay stop
kill $other
wait $other 2> /dev/null
say "value opener_seen 1"

check forebay detach data
/usr/bin/dpkg -r forebay > /tmp/said 2>&1 || give_up "/usr/bin/dpkg -r after a detach: $(tail -c 600 /tmp/said | tr '\n' ' ')"
same "the binary after removal" "" "$(ls /usr/bin/forebay 2> /dev/null)"
same "the daemon after removal" "" "$(pidof forebay)"
[ -e /etc/forebay/ssd.toml ] || fail "removal took the configuration"
/usr/bin/dpkg -P forebay > /tmp/said 2>&1 || give_up "/usr/bin/dpkg -P: $(tail -c 600 /tmp/said | tr '\n' ' ')"
same "what is left after a purge" "" "$(ls -d /etc/forebay /run/forebay 2> /dev/null)"
# The disk is whole by itself.
check mount -t ext4 /dev/$HDD /files
same "the file on the disk itself" "$sum" "$(md5sum < /files/big)"
check umount /files
check e2fsck -fn /dev/$HDD
kernel_complains && fail "$(head -2 /tmp/said)"
say "value purged 1"
:
