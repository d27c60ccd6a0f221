# Synced writes of 4 to 512 KiB into a file on ext2, write-through and write-back, and a live switch from one to the
# other and back while a writer runs.
set_mode() {
    case $SYSTEM in
    bcache*) bcache_mode $1 ;;
    forebay-*) forebay mode volume $1 --control /run/forebay.control > /tmp/said 2>&1 || give_up "forebay mode: $(tail -1 /tmp/said)" ;;
    hdd | ssd) ;;
    *) say "unsupported $SYSTEM cannot change its mode while it is in use"; exit 0 ;;
    esac
    say "value switched_to_$1_at $(now)"
}

start
dmsetup --noudevsync create part --table "0 2097152 linear $TARGET 4194304" && dmsetup mknodes || give_up "no device for the file system"
mkfs.ext4 -q -t ext2 /dev/mapper/part > /tmp/said 2>&1 || give_up "mkfs: $(tail -1 /tmp/said)"
mkdir -p /files
mount -t ext4 /dev/mapper/part /files && dd if=/dev/zero of=/files/file bs=1M count=64 2> /dev/null && umount /files &&
    mount -t ext4 -o sync /dev/mapper/part /files || give_up "ext2 does not mount"
write_synced() {
    job $1-$2k --filename=/files/file --direct=0 --ioengine=psync --sync=1 --rw=randwrite --bs=$2k --size=64m --time_based --runtime=${MILLISECONDS}ms
}
for mode in writethrough writeback; do
    set_mode $mode
    for size in 4 32 128 512; do write_synced $mode $size; done
done
set_mode writethrough
(sleep 4; set_mode writeback; sleep 4; set_mode writethrough) &
SWITCHER=$!
fio --name=switch --filename=/files/file --ioengine=psync --sync=1 --rw=randwrite --bs=4k --size=64m --time_based --runtime=12s \
    --write_bw_log=/tmp/switch --log_avg_msec=250 > /tmp/said 2>&1 || fail "the run with a switch: $(tail -1 /tmp/said)"
# Only for this one: the cache may be a background process too.
wait $SWITCHER
awk -F, '{ printf "%.2f %s\n", $1 / 1000, $2 }' /tmp/switch_bw.1.log > /lab/out/throughput
