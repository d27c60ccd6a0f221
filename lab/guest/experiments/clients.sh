# What people put on a block device: partitions, ext4 and xfs with fsx and verified fio load, trim, discard, LVM.
# Full paths, since the shell prefers its own programs to those of the same name.
start
cd /tmp
mkdir -p /files /etc/lvm /run/lvm /run/lock/lvm
verified() {
    where=$1
    shift
    check fio --name=verified $where --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --fsync=64 "$@"
}

verified --filename=$TARGET --rw=randrw --bsrange=512-256k --iodepth=16 --size=64m
say "value verified_raw 1"

printf 'label: gpt\n,512M\n,1G\n' > /tmp/parts
/usr/bin/sfdisk -q $TARGET < /tmp/parts > /tmp/said 2>&1 || give_up "sfdisk: $(tail -1 /tmp/said)"
wait_for ${TARGET}p2
same "partitions in lsblk" 2 "$(/usr/bin/lsblk -n -o TYPE $TARGET | grep -c part)"
same "logical block" 512 "$(cat /sys/block/ublkb0/queue/logical_block_size)"
same "physical block" 4096 "$(cat /sys/block/ublkb0/queue/physical_block_size)"
same "write cache" "write back" "$(cat /sys/block/ublkb0/queue/write_cache)"
same "FUA" 1 "$(cat /sys/block/ublkb0/queue/fua)"
same "rotational" 0 "$(cat /sys/block/ublkb0/queue/rotational)"
say "value partitions 2"

for kind in ext4 xfs; do
    case $kind in
    ext4) check mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 ${TARGET}p2 ;;
    xfs) check mkfs.xfs -q -f ${TARGET}p2 ;;
    esac
    same "blkid's type" $kind "$(/usr/bin/blkid -o value -s TYPE ${TARGET}p2)"
    check mount -t $kind -o discard ${TARGET}p2 /files
    check fsx -q -S 7 -N 2000 /files/fsx
    verified --directory=/files --rw=randwrite --bs=4k --iodepth=8 --size=8m
    dd if=/dev/urandom of=/files/big bs=1M count=16 2> /dev/null
    sync
    sum=$(md5sum < /files/big)
    echo 3 > /proc/sys/vm/drop_caches
    same "a file read again on $kind" "$sum" "$(md5sum < /files/big)"
    check /usr/bin/fstrim /files
    check umount /files
    case $kind in
    ext4) check e2fsck -fn ${TARGET}p2 ;;
    xfs) check xfs_repair -n ${TARGET}p2 ;;
    esac
    say "value file_systems 1"
done

dd if=/dev/urandom of=$TARGET bs=1M count=8 seek=2000 conv=fsync 2> /dev/null
check /usr/bin/blkdiscard -f -z -o $((2000 << 20)) -l $((4 << 20)) $TARGET
same "zeroes after blkdiscard -z" "" "$(dd if=$TARGET bs=1M skip=2000 count=4 iflag=direct 2> /dev/null | tr -d '\000' | head -c 1)"
same "what lies behind them" 1048576 "$(dd if=$TARGET bs=1M skip=2004 count=1 iflag=direct 2> /dev/null | wc -c)"
check /usr/bin/blkdiscard -f $TARGET
say "value discards 2"

configure_lvm
check lvm pvcreate -q -y $TARGET
check lvm vgcreate -q group $TARGET
check lvm lvcreate -q -y -Wn -Zn -L 500M -n volume group
dmsetup mknodes
check mkfs.ext4 -q /dev/mapper/group-volume
check mount /dev/mapper/group-volume /files
check fsx -q -S 8 -N 500 /files/fsx
forebay stop --control /run/forebay.control > /tmp/said 2>&1
same "the exit code of a stop while in use" 3 $?
check umount /files
check lvm vgchange -q -an group
say "value logical_volumes 1"

check forebay stop --control /run/forebay.control
wait $FOREBAY
same "the block device after a stop" "" "$(ls /dev | grep ublkb)"
dmesg | grep -iE "I/O error|hung task|BUG:" > /tmp/said && fail "$(head -2 /tmp/said)"
:
