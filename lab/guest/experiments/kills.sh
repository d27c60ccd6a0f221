# The daemon is killed again and again under a mounted, loaded ext4, and started again: no program may see an error,
# and no byte may be lost.
KILLS=50
start
dmsetup --noudevsync create files --table "0 2097152 linear $TARGET 4194304" && dmsetup mknodes || give_up "no device for the file system"
check mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/files
mkdir -p /files
check mount /dev/mapper/files /files
fio --name=verified --directory=/files --rw=randwrite --bsrange=4k-64k --iodepth=8 --size=16m --ioengine=libaio --direct=1 \
    --fsync=16 --verify=crc32c --verify_fatal=1 --loops=100000 --output=/tmp/fio > /dev/null 2>&1 &
FIO=$!
fsx -q -S 3 -N 1000000000 /files/fsx > /tmp/fsx 2>&1 &
FSX=$!
kills=0
longest=0
while [ $kills -lt $KILLS ]; do
    sleep 0.$((kills % 10))
    sleep 0.2
    kill -9 $FOREBAY
    wait $FOREBAY 2> /dev/null
    began=$(now)
    forebay_serve --ublk
    tries=0
    until forebay devices 2> /dev/null | grep -q "served by process $FOREBAY"; do
        tries=$((tries + 1))
        kill -0 $FOREBAY 2> /dev/null && [ $tries -lt 600 ] || give_up "no daemon after kill $kills: $(tail -1 /tmp/forebay)"
        sleep 0.05
    done
    longest=$(awk -v a=$longest -v b=$began -v c=$(now) 'BEGIN { d = c - b; print (d > a ? d : a) }')
    kills=$((kills + 1))
    kill -0 $FIO || give_up "fio ended after kill $kills: $(tail -3 /tmp/fio | tr '\n' ' ')"
    kill -0 $FSX || give_up "fsx ended after kill $kills: $(tail -3 /tmp/fsx | tr '\n' ' ')"
done
say "value kills $kills"
say "value longest_pause_seconds $longest"
kill -INT $FIO
kill $FSX
wait $FIO $FSX
grep -q "err= 0" /tmp/fio || fail "fio: $(grep -m1 err= /tmp/fio)"
# What has been written in full is read once more, from the device and not from memory.
sync
echo 3 > /proc/sys/vm/drop_caches
check umount /files
check e2fsck -fn /dev/mapper/files
kernel_complains && fail "$(head -2 /tmp/said)"
forebay status --control /run/forebay.control > /tmp/said 2>&1 || fail "no status: $(tail -1 /tmp/said)"
:
