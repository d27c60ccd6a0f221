# The guides from dm-cache, LVM's cache and dm-writecache: a file system with dirty data in the old cache is served by
# Forebay with that data, and the disk has everything after the way back. Those of `make lab EXPERIMENT=migrate` are more.
sectors() { blockdev --getsz $1; }
make_partitions
install_package
# Both devices still have what the life before left on them.
for device in /dev/sdb /dev/nvme0n1p3; do check dd if=/dev/zero of=$device bs=1M count=16 conv=fsync; done
check udevadm settle
# fill DEVICE: a file system in use, with a file that no slower device has
fill() {
    check mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 $1
    check mount $1 /srv
    dd if=/dev/urandom of=/srv/old bs=1M count=8 conv=fsync 2> /dev/null
    keep_sum /srv/old
}
# is_on_volume: the file, then a change to it
is_on_volume() {
    is_served data
    check mount /dev/forebay/data /srv
    found_again /srv/old
    dd if=/dev/urandom of=/srv/new bs=1M count=4 conv=fsync 2> /dev/null
    keep_sum /srv/new
    check umount /srv
}
is_on_disk() {
    check e2fsck -fn $1
    check mount $1 /srv
    found_again /srv/old
    found_again /srv/new
    until_is "the daemon" "" daemon
}

from_dm_cache() {
    check dmsetup create metadata --table "0 16384 linear /dev/nvme0n1p3 0"
    check dmsetup create fast --table "0 $(($(sectors /dev/nvme0n1p3) - 16384)) linear /dev/nvme0n1p3 16384"
    check dmsetup create cached --table "0 $(sectors /dev/sdb) cache /dev/mapper/metadata /dev/mapper/fast /dev/sdb 512 2 metadata2 writeback smq 0"
    check udevadm settle
    fill /dev/mapper/cached
    block reference/migrate/dm-cache.md 3
    check dmsetup remove metadata fast
    ANSWER="a dm-cache metadata device"
    block reference/migrate/dm-cache.md 4
    ANSWER=
    block reference/migrate/dm-cache.md 5
    is_on_volume
    block reference/migrate/dm-cache.md 6
    is_on_disk /dev/sdb
}
from_lvm() {
    check vgcreate -q vg /dev/sdb /dev/nvme0n1p3
    check lvcreate -q -y -n slow -L 512M vg /dev/sdb
    check lvcreate -q -y -n fast -L 256M vg /dev/nvme0n1p3
    check lvconvert -q -y --type cache --cachemode writeback --cachevol fast vg/slow
    fill /dev/vg/slow
    ANSWER="data of an unknown kind"
    block reference/migrate/dm-cache.md 1
    ANSWER=
    same "the volume's segments" linear "$(lvs --noheadings -o segtype vg/slow | tr -d ' ')"
    block reference/migrate/dm-cache.md 2
    is_on_volume
    block reference/migrate/dm-cache.md 6
    is_on_disk /dev/vg/slow
}
from_dm_writecache() {
    check dmsetup create cached --table "0 $(sectors /dev/sdb) writecache s /dev/sdb /dev/nvme0n1p3 4096 0"
    check udevadm settle
    fill /dev/mapper/cached
    ANSWER="a dm-writecache cache"
    block reference/migrate/dm-writecache.md 1
    ANSWER=
    block reference/migrate/dm-writecache.md 2
    is_on_volume
    check forebay detach data
    check forebay stop
    is_on_disk /dev/sdb
}
# LVM's comes last: it would find its group again at the next boot.
case $LIFE in
1) from_dm_writecache ;;
2) from_dm_cache ;;
3) from_lvm ;;
esac
kernel_complains && fail "$(head -2 /tmp/said)"
:
