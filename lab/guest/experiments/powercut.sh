# Life after life: recover, check all that was synced, see how warm the cache still is, then write and sync until the
# power is cut again. The last life also checks a file system that was in use all along.
FILES_MIB=512
files() { echo "0 $((FILES_MIB * 2048)) linear $TARGET 4194304"; }

mount_files() {
    dmsetup --noudevsync create files --table "$(files)" && dmsetup mknodes || give_up "no device for the file system"
    [ "$1" = new ] && { mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/files > /tmp/said 2>&1 || give_up "mkfs: $(tail -1 /tmp/said)"; }
    [ "$1" = check ] && check_files
    mkdir -p /files
    mount /dev/mapper/files /files || give_up "the file system does not mount"
}

# The journal is replayed, then a full check must find nothing to mend.
check_files() {
    e2fsck -p /dev/mapper/files > /tmp/said 2>&1
    e2fsck -fn /dev/mapper/files > /tmp/said 2>&1 || fail "e2fsck: $(tr '\n' ' ' < /tmp/said | cut -c1-200)"
    say "value fsck_runs 1"
}

churn() {
    number=0
    while :; do
        dd if=/dev/urandom of=/files/$((number % 50)) bs=16k count=4 conv=fsync 2> /dev/null
        rm -f /files/$(((number + 25) % 50))
        number=$((number + 1))
    done
}

# Random reads of what was in the cache before the cut: how much of it comes from the SSD?
hits() {
    before=$(awk '{ print $3 }' /sys/block/$HDD/stat)
    job warm-after-cut --filename=$TARGET --rw=randread --bs=4k --iodepth=8 --offset=4g --size=256m --number_ios=4000
    after=$(awk '{ print $3 }' /sys/block/$HDD/stat)
    say "value hit_percent_after_cut $(awk -v sectors=$((after - before)) 'BEGIN { printf "%.1f", 100 - sectors / 8 / 4000 * 100 }')"
}

if [ $LIFE = 1 ]; then
    start
    job warm-1 --filename=$TARGET --rw=read --bs=128k --iodepth=4 --offset=4g --size=256m
    job warm-2 --filename=$TARGET --rw=read --bs=128k --iodepth=4 --offset=4g --size=256m
    mount_files new
else
    began=$(now)
    resume
    say "value recovery_seconds $(awk -v from=$began -v to=$(now) 'BEGIN { print to - from }')"
    forebay-lab synced check $TARGET $SYNCED
    JOB=$((LIFE * 10))
    hits
    mount_files check
fi
if [ $LIFE != $LAST_LIFE ]; then
    churn &
    forebay-lab synced write $TARGET $SYNCED
fi
