# Random reads and writes over five times the cache, on arrangements of disks and SSDs: in each life of the guest
# another one. As in the comparison of 2014 each job is repeated until its coefficient of variation is under 5 %: that of
# its last five, as the first ones fill caches and write buffers (a "measurement window" in SNIA's SSS PTS).
WINDOW=5
MOST=15
SPAN_MIB=1280
# bcache takes no cache of fewer than 513 buckets.
BUCKET=128k
# As much as twice the cache.
MIB_WARM=512

device_list() { for path in /sys/block/vd*; do case $(cat $path/serial) in $1*) echo /dev/$(basename $path) ;; esac; done; }

# array LEVEL KIND: makes it, and says in ARRAY how it is called
array() {
    case $2 in hdd) ARRAY=md0 ;; *) ARRAY=md1 ;; esac
    mdadm --create /dev/$ARRAY --run --metadata=1.2 --assume-clean --level=$1 --chunk=512 --raid-devices=4 $(device_list $2) > /tmp/said 2>&1 ||
        give_up "mdadm: $(tail -1 /tmp/said)"
}

# The cache is as large on four SSDs as on one: a quarter of each.
quarter_of() {
    dmsetup --noudevsync create quarter --table "0 524288 linear /dev/$1 0" || give_up "no part of the SSDs"
    ARRAY=$(dmsetup info --columns --noheadings -o blkdevname quarter)
}

case $SYSTEM in
hdd) set -- 1hdd 4hdd-raid0 4hdd-raid10 ;;
ssd) set -- 1ssd 4ssd-raid0 ;;
*) set -- 1ssd+1hdd 1ssd+4hdd-raid0 1ssd+4hdd-raid10 4ssd-raid0+4hdd-raid0 4ssd-raid0+4hdd-raid10 ;;
esac
eval "arrangement=\${$LIFE}"
[ -n "$arrangement" ] || exit 0

# What the arrangement before has left would be found, and taken for somebody's.
for device in $(device_list hdd) $(device_list ssd); do
    blkdiscard -f $device && wipefs -qa $device || give_up "$device cannot be emptied"
done

disk=$HDD
fast=$SSD
case $arrangement in
*4hdd-raid0) array 0 hdd && disk=$ARRAY ;;
*4hdd-raid10) array 10 hdd && disk=$ARRAY ;;
esac
case $arrangement in
4ssd-raid0) array 0 ssd && fast=$ARRAY ;;
4ssd-raid0+*) array 0 ssd && quarter_of $ARRAY && fast=$ARRAY ;;
esac
use_devices $disk $fast
start

offset=256
[ $SYSTEM = ssd ] && offset=0 && SPAN_MIB=$((SSD_SECTORS / 2048))
load="--filename=$TARGET --ioengine=psync --offset=${offset}m --size=${SPAN_MIB}m --randrepeat=0"
# Each time at other places, or all would be hits: fio takes notice of a seed only if it may not repeat itself.
seed=$LIFE

# The coefficient of variation, in percent. busybox's awk has no square root: twenty of Newton's steps.
variation() {
    awk '{ n++; sum += $1; squares += $1 * $1 }
         END { mean = sum / n; v = squares / n - mean * mean
               root = v > 0 ? v : 0; for (i = 0; i < 20 && root > 0; i++) root = (root + v / root) / 2
               printf "%.1f\n", 100 * root / (mean > 0 ? mean : 1) }'
}

# steady LABEL FIO-ARGUMENTS...
steady() {
    : > /tmp/loops
    loop=0
    while [ $((loop += 1)) -le $MOST ]; do
        seed=$((seed + 10))
        job $arrangement-$@ --randseed=$seed
        JOB=$((JOB - 1))
        sed -n 's/.*"bw" : \([0-9]*\).*/\1/p' /tmp/fio | sort -n | tail -1 >> /tmp/loops
        cv=$(tail -n $WINDOW /tmp/loops | variation)
        [ $loop -ge 3 ] && [ ${cv%.*} -lt 5 ] && break
    done
    JOB=$((JOB + 1))
    for kib_s in $(tail -n $WINDOW /tmp/loops); do say "value $arrangement-$1-KiB/s $kib_s"; done
    say "value $arrangement-$1-variation-percent $cv"
}

JOB=$(((LIFE - 1) * 10))
case $SYSTEM in
hdd | ssd) ;;
*) job warm-up-$arrangement $load --rw=randread --bs=64k --io_size=${MIB_WARM}m --randseed=$seed ;;
esac
for size in 64k 512k 4m; do
    steady read-$size $load --rw=randread --bs=$size --time_based --runtime=${MILLISECONDS}ms
done
for size in 64k 512k 4m; do
    steady write-$size $load --rw=randwrite --bs=$size --time_based --runtime=${MILLISECONDS}ms
done
