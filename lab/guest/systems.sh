# One cache over $HDD and $SSD, as SYSTEM names it: `start` makes it (or with MODE, in that mode),
# `resume` finds it again after a power cut. Both leave the device to use in $TARGET.
# use_devices DISK SSD [SSD]: others than the lab's, such as arrays of them
use_devices() {
    HDD=$1
    SSD=$2
    SSD2=$3
    HDD_SECTORS=$(cat /sys/class/block/$HDD/size)
    SSD_SECTORS=$(cat /sys/class/block/$SSD/size)
}
use_devices $HDD $SSD $SSD2

# bcache prints sizes for people: 1.2G
to_kib() {
    awk '{ unit = substr($1, length($1)); size = $1 + 0
           if (unit == "k") size *= 1; else if (unit == "M") size *= 1024
           else if (unit == "G") size *= 1048576; else size /= 1024
           printf "%d\n", size }'
}

# ---- bcache ----
bcache_register() {
    echo /dev/$SSD > /sys/fs/bcache/register
    echo /dev/$HDD > /sys/fs/bcache/register
    BCACHE=/sys/block/bcache0/bcache
    wait_for $BCACHE/cache
    CACHE_SET=$(ls -d /sys/fs/bcache/*-*)
    wait_for /dev/bcache0
    TARGET=/dev/bcache0
    dirty_kib() { to_kib < $BCACHE/dirty_data; }
    counters() {
        for name in state writeback_rate stats_total/cache_hits stats_total/cache_misses stats_total/bypassed; do
            echo "$(basename $name) $(cat $BCACHE/$name)"
        done
        echo "available_percent $(cat $CACHE_SET/cache_available_percent)"
        echo "metadata_written $(cat $CACHE_SET/cache0/metadata_written)"
    }
}
bcache_mode() { echo $1 > $BCACHE/cache_mode; }
bcache_everything() {
    echo 0 > $BCACHE/sequential_cutoff
    echo 0 > $CACHE_SET/congested_read_threshold_us
    echo 0 > $CACHE_SET/congested_write_threshold_us
}
bcache_start() {
    make-bcache --block 4k --bucket ${BUCKET:-512k} -C /dev/$SSD -B /dev/$HDD > /tmp/made 2>&1 ||
        give_up "make-bcache: $(tail -1 /tmp/made)"
    bcache_register
    bcache_mode $1
}

# ---- dm-cache: 16 MiB of metadata, then data in blocks of 256 KiB ----
DM_BLOCK=512
DM_METADATA=32768
dm_table() { dmsetup --noudevsync create "$1" --table "$2" || give_up "dmsetup create $1"; dmsetup mknodes; }
dmcache_assemble() {
    dm_table metadata "0 $DM_METADATA linear /dev/$SSD 0"
    dm_table data "0 $((SSD_SECTORS - DM_METADATA)) linear /dev/$SSD $DM_METADATA"
    dm_table cached "0 $HDD_SECTORS cache /dev/mapper/metadata /dev/mapper/data /dev/$HDD $DM_BLOCK 2 metadata2 $1 smq 0"
    TARGET=/dev/mapper/cached
    dirty_kib() { dmsetup status cached | awk -v block=$DM_BLOCK '{ print $14 * block / 2 }'; }
    counters() {
        dmsetup status cached | awk '{ print "read_hits " $8 "\nread_misses " $9 "\nwrite_hits " $10 "\nwrite_misses " $11
                                       print "demotions " $12 "\npromotions " $13 }'
        echo "metadata_stat $(cat /sys/block/$(basename $(readlink -f /dev/mapper/metadata))/stat)"
    }
}
dmcache_start() {
    dd if=/dev/zero of=/dev/$SSD bs=1M count=1 conv=fsync 2> /dev/null
    dmcache_assemble $1
}

# As one would have dirty data on two SSDs with it: both hold all of the cache.
dmcache_md_start() {
    mdadm --create /dev/md0 --run --metadata=1.2 --assume-clean --level=1 --raid-devices=2 /dev/$SSD /dev/$SSD2 > /tmp/said 2>&1 ||
        give_up "mdadm: $(tail -1 /tmp/said)"
    use_devices $HDD md0
    dmcache_start $1
}

# ---- dm-writecache ----
writecache_assemble() {
    dm_table cached "0 $HDD_SECTORS writecache s /dev/$HDD /dev/$SSD 4096 0"
    TARGET=/dev/mapper/cached
    dirty_kib() { dmsetup status cached | awk '{ print ($5 - $6) * 4 }'; }
    counters() { dmsetup status cached | awk '{ print "free_blocks " $6 "\nwriteback_blocks " $7 }'; }
}
writecache_start() {
    dd if=/dev/zero of=/dev/$SSD bs=1M count=1 conv=fsync 2> /dev/null
    writecache_assemble
}

# ---- user space over the kernel's NBD client ----
# nbd_connect SOCKET EXPORT CONNECTIONS SERVER-LOG
nbd_connect() {
    nbd-client -unix "$1" /dev/nbd0 -N "$2" -b 4096 -C $3 > /tmp/said 2>&1 || give_up "nbd-client: $(tail -qc 300 /tmp/said $4 | tr '\n' ' ')"
    echo none > /sys/block/nbd0/queue/scheduler
    TARGET=/dev/nbd0
}

# The page cache of nbdkit's cache file would be a second cache, in memory: a control group bounds it.
# A hard limit (memory.max) would have nbdkit killed as soon as all of that is dirty.
nbdkit_start() {
    mkdir -p /run/group
    mount -t cgroup2 none /run/group && echo '+memory +io' > /run/group/cgroup.subtree_control && mkdir -p /run/group/nbdkit &&
        echo 128M > /run/group/nbdkit/memory.high || give_up "no control group to bound nbdkit's page cache"
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/$SSD > /tmp/said 2>&1 && mount /dev/$SSD /mnt || give_up "mkfs on the SSD: $(tail -1 /tmp/said)"
    sh -c "echo \$\$ > /run/group/nbdkit/cgroup.procs; TMPDIR=/mnt exec nbdkit -f -t 16 -U /run/nbdkit.sock --filter=cache file file=/dev/$HDD \
        cache=writeback cache-on-read=true cache-min-block-size=4k cache-max-size=$((SSD_SECTORS * 512 / 100 * 90))" > /tmp/nbdkit 2>&1 &
    wait_for /run/nbdkit.sock /tmp/nbdkit
    nbd_connect /run/nbdkit.sock "" 4 /tmp/nbdkit
}

case $SYSTEM in *-memory) COMMIT="--commit memory" ;; esac
forebay_serve() {
    forebay serve --origin /dev/$HDD --cache /dev/$SSD $COMMIT "$@" --name volume --state-dir /run/state \
        --control /run/forebay.control --log-level warn > /tmp/forebay 2>&1 &
    FOREBAY=$!
    dirty_kib() { forebay_dirty_bytes | awk '{ printf "%d\n", $1 / 1024 }'; }
    counters() { echo "forebay $(forebay_status)"; }
}
# Both of the daemon with this control socket, or the one that forebay_serve started.
forebay_status() { forebay status --json --control ${1:-/run/forebay.control} | tr -d '\n'; }
# ask COMMAND...: of that daemon, which must have answered within five minutes
ask() { timeout 300 forebay "$@" --control /run/forebay.control; }
forebay_dirty_bytes() { forebay_status "$@" | sed -n 's/.*"volumes":.*"dirty_bytes": *\([0-9]*\).*/\1/p'; }
forebay_nbd() {
    forebay_serve --nbd unix:/run/forebay.sock "$@"
    wait_for /run/forebay.sock /tmp/forebay
    nbd_connect /run/forebay.sock volume 2 /tmp/forebay
}
forebay_ublk() {
    forebay serve --help | grep -q -e --ublk || { say "unsupported this build of forebay has no ublk export"; exit 0; }
    forebay_serve --ublk "$@"
    wait_for /dev/ublkb0 /tmp/forebay
    TARGET=/dev/ublkb0
}

start() {
    case $SYSTEM in
    hdd) TARGET=/dev/$HDD ;;
    ssd) TARGET=/dev/$SSD ;;
    bcache) bcache_start writeback ;;
    bcache-all) bcache_start writeback; bcache_everything ;;
    bcache-wt) bcache_start writethrough; bcache_everything ;;
    dm-cache) dmcache_start writeback ;;
    dm-cache-wt) dmcache_start writethrough ;;
    dm-cache-md) dmcache_md_start writeback ;;
    dm-writecache) writecache_start ;;
    nbdkit-cache) nbdkit_start ;;
    forebay-nbd) forebay_nbd --create --mode ${MODE:-writeback} ;;
    forebay-nbd-wt) forebay_nbd --create --mode writethrough ;;
    forebay-ublk|forebay-ublk-memory) forebay_ublk --create --mode ${MODE:-writeback} ;;
    forebay-ublk-wt) forebay_ublk --create --mode writethrough ;;
    forebay-ublk-shards-*)
        forebay create /dev/$SSD --shards ${SYSTEM##*-} > /tmp/said 2>&1 || give_up "create: $(said)"
        forebay_ublk --mode writeback
        ;;
    forebay-ublk-two) forebay_ublk --create --mode writeback --cache /dev/$SSD2 ;;
    forebay-ublk-copies) forebay_ublk --create --mode writeback --cache /dev/$SSD2 --copies 2 ;;
    *) give_up "no system is called $SYSTEM" ;;
    esac
    say "started $SYSTEM $TARGET $(now)"
}

resume() {
    case $SYSTEM in
    hdd) TARGET=/dev/$HDD ;;
    ssd) TARGET=/dev/$SSD ;;
    bcache-all) bcache_register; bcache_everything ;;
    bcache*) bcache_register ;;
    dm-cache) dmcache_assemble writeback ;;
    dm-cache-wt) dmcache_assemble writethrough ;;
    dm-writecache) writecache_assemble ;;
    nbdkit-cache) nbdkit_start ;;
    forebay-nbd*) forebay_nbd ;;
    forebay-ublk*) forebay_ublk ;;
    *) give_up "no system is called $SYSTEM" ;;
    esac
    say "resumed $SYSTEM $TARGET $(now)"
}
