# The guides of docs/migrate, with their commands: a file system on a disk behind another cache, with dirty data, moves to
# Forebay and back, and no byte of it is copied. `hdd` stands for LVM's ways to the same caches.
# Full paths, since the shell prefers its own programs to those of the same name.
cd /tmp
mkdir -p /files
at() { say "value $1_at $(now)"; }
# soon COMMAND...: the kernel lets a stopped device go in its own time
soon() {
    tries=0
    until "$@" > /tmp/said 2>&1; do
        tries=$((tries + 1))
        [ $tries -gt 100 ] && give_up "$*: $(said)"
        sleep 0.1
    done
}
configure_lvm

# fill DEVICE: a file system with a file, the last part of it dirty in the old cache
fill() {
    check mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 $1
    check mount -t ext4 $1 /files
    dd if=/dev/urandom of=/files/data bs=1M count=24 2> /dev/null
    sync
    SUM=$(md5sum < /files/data)
    check umount /files
    at filled
}
# find_again DEVICE LABEL: the file is there, and can be changed
find_again() {
    check e2fsck -fn $1
    check mount -t ext4 $1 /files
    same "the file on $2" "$SUM" "$(md5sum < /files/data)"
    dd if=/dev/urandom of=/files/data bs=1M count=4 seek=10 conv=notrunc 2> /dev/null
    sync
    SUM=$(md5sum < /files/data)
    check umount /files
    say "value found_again_$2 1"
}
# create_over: Forebay says what the SSD holds, and takes it when told the same; on a terminal it would ask
create_over() {
    forebay create /dev/$SSD --force > /tmp/said 2>&1 < /dev/null && give_up "forebay took the SSD without being told what is lost"
    lost=$(sed -n 's/.*--yes-lose "\(.*\)"/\1/p' /tmp/said)
    [ -n "$lost" ] || give_up "forebay create: $(said)"
    check forebay create /dev/$SSD --force --yes-lose "$lost"
    at created
}
# serve ORIGIN OPTIONS: as in the guides, but for where the daemon keeps its state here
serve() {
    origin=$1
    shift
    forebay serve --origin $origin --name data --cache /dev/$SSD --ublk "$@" --state-dir /run/state --control /run/forebay.control --log-level warn > /tmp/forebay 2>&1 &
    FOREBAY=$!
    wait_for /dev/ublkb0 /tmp/forebay
}
detach_and_stop() {
    check forebay detach data --control /run/forebay.control
    check forebay stop --control /run/forebay.control
    wait $FOREBAY
}
# through_forebay ORIGIN LABEL OPTIONS
through_forebay() {
    origin=$1
    label=$2
    shift 2
    serve $origin "$@"
    find_again /dev/ublkb0 $label
    detach_and_stop
    find_again $origin $label-detached
}
forget_ssd() { dd if=/dev/zero of=/dev/$SSD bs=1M count=16 conv=fsync 2> /dev/null; }

take_bcache_off() {
    echo 1 > $BCACHE/detach
    until_is "bcache's state" "no cache" "cat $BCACHE/state"
    at detached
    echo 1 > $CACHE_SET/stop
    until_is "the cache set" "" "ls -d $CACHE_SET 2> /dev/null"
}
migrate_bcache() {
    start
    fill /dev/bcache0
    take_bcache_off
    create_over
    through_forebay /dev/bcache0 bcache0-as-origin --profile bcache

    first=$(bcache-super-show /dev/$HDD | sed -n 's/.*data.first_sector[^0-9]*\([0-9]*\).*/\1/p')
    same "bcache's first sector" 16 "$first"
    echo 1 > /sys/block/bcache0/bcache/stop
    until_is "bcache0" "" "ls /dev/bcache0 2> /dev/null"
    soon dmsetup --noudevsync create data-origin --table "0 $(($(blockdev --getsz /dev/$HDD) - 16)) linear /dev/$HDD 16"
    dmsetup mknodes
    forget_ssd
    check forebay create /dev/$SSD
    through_forebay /dev/mapper/data-origin mapping --profile bcache
    soon dmsetup --noudevsync remove data-origin

    create_over
    loop=$(/usr/bin/losetup --find --show --offset 8192 --direct-io=on /dev/$HDD) || give_up "no loop device"
    through_forebay $loop loop-device --profile bcache
    check /usr/bin/losetup --detach $loop

    # Back: the superblock of the backing device is still there.
    echo /dev/$HDD > /sys/fs/bcache/register
    wait_for /dev/bcache0
    forget_ssd
    check make-bcache -C /dev/$SSD
    set=$(sed -n 's/Set UUID:[^0-9a-f]*//p' /tmp/said)
    echo /dev/$SSD > /sys/fs/bcache/register
    wait_for /sys/fs/bcache/$set
    echo $set > /sys/block/bcache0/bcache/attach
    find_again /dev/bcache0 back-in-bcache
    BCACHE=/sys/block/bcache0/bcache
    CACHE_SET=/sys/fs/bcache/$set
    take_bcache_off
    echo 1 > /sys/block/bcache0/bcache/stop
    until_is "bcache0" "" "ls /dev/bcache0 2> /dev/null"
    soon /usr/bin/wipefs -a -t bcache /dev/$HDD
    check make-bcache -B /dev/$HDD
    echo /dev/$HDD > /sys/fs/bcache/register
    wait_for /dev/bcache0
    find_again /dev/bcache0 superblock-made-again
    echo 1 > /sys/block/bcache0/bcache/stop
    until_is "bcache0" "" "ls /dev/bcache0 2> /dev/null"

    # A backing device that is a partition, for good.
    soon /usr/bin/wipefs -a /dev/$HDD
    printf 'label: gpt\nstart=2048,size=4194304\n' > /tmp/parts
    check /usr/bin/sfdisk -q /dev/$HDD < /tmp/parts
    part=${HDD}1
    wait_for /dev/$part
    check make-bcache -B /dev/$part
    echo /dev/$part > /sys/fs/bcache/register
    wait_for /dev/bcache0
    fill /dev/bcache0
    echo 1 > /sys/block/bcache0/bcache/stop
    until_is "bcache0" "" "ls /dev/bcache0 2> /dev/null"
    /usr/bin/sfdisk --dump /dev/$HDD | sed 's/start= *2048, size= *4194304/start=2064, size=4194288/' > /tmp/table
    grep -q start=2064 /tmp/table || give_up "no such partition: $(cat /tmp/table | tr '\n' ' ')"
    check /usr/bin/sfdisk -q --no-reread /dev/$HDD < /tmp/table
    soon blockdev --rereadpt /dev/$HDD
    wait_for /dev/$part
    forget_ssd
    check forebay create /dev/$SSD
    through_forebay /dev/$part partition --profile bcache
}

migrate_dm_cache() {
    start
    fill $TARGET
    check dmsetup table cached
    table=$(sed 's/ smq .*/ cleaner 0/' /tmp/said)
    check dmsetup --noudevsync suspend cached
    check dmsetup --noudevsync reload cached --table "$table"
    check dmsetup --noudevsync resume cached
    until_is "dirty blocks" 0 "dmsetup status cached | awk '{ print \$14 }'"
    for name in cached metadata data; do check dmsetup --noudevsync remove $name; done
    create_over
    through_forebay /dev/$HDD dm-cache --profile dm-cache
}

migrate_writecache() {
    start
    fill $TARGET
    check dmsetup message cached 0 flush_on_suspend
    check dmsetup --noudevsync suspend cached
    same "the error indicator" 0 "$(dmsetup status cached | awk '{ print $4 }')"
    check dmsetup --noudevsync remove cached
    create_over
    through_forebay /dev/$HDD dm-writecache --profile dm-writecache --admission always
}

# migrate_lvm TYPE PROFILE
migrate_lvm() {
    check lvm lvchange -q -an vg/fast
    check lvm lvconvert -q -y --type $1 --cachevol fast vg/slow
    dmsetup mknodes
    fill /dev/mapper/vg-slow
    check lvm lvconvert -q -y --uncache vg/slow
    dmsetup mknodes
    same "the volume's segments" linear "$(lvm lvs --noheadings -o segtype vg/slow | tr -d ' ')"
    check lvm vgreduce -q vg /dev/$SSD
    check lvm pvremove -q -y /dev/$SSD
    create_over
    through_forebay /dev/mapper/vg-slow lvm-$1 --profile $2
    forget_ssd
    check lvm pvcreate -q -y /dev/$SSD
    check lvm vgextend -q vg /dev/$SSD
    check lvm lvcreate -q -y -Wn -Zn -n fast -L 400M vg /dev/$SSD
    dmsetup mknodes
}

case $SYSTEM in
bcache*) migrate_bcache ;;
dm-cache) migrate_dm_cache ;;
dm-writecache) migrate_writecache ;;
hdd)
    check lvm pvcreate -q -y /dev/$HDD /dev/$SSD
    check lvm vgcreate -q vg /dev/$HDD /dev/$SSD
    check lvm lvcreate -q -y -Wn -Zn -n slow -L 2G vg /dev/$HDD
    check lvm lvcreate -q -y -Wn -Zn -n fast -L 400M vg /dev/$SSD
    dmsetup mknodes
    migrate_lvm cache dm-cache
    migrate_lvm writecache dm-writecache
    check lvm lvconvert -q -y --type cache --cachevol fast vg/slow
    dmsetup mknodes
    find_again /dev/mapper/vg-slow back-in-lvmcache
    ;;
*) say "unsupported there is no guide for $SYSTEM" ;;
esac
dmesg | grep -iE "I/O error|hung task|BUG:" > /tmp/said && fail "$(head -2 /tmp/said)"
:
