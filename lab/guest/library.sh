# For every experiment: the devices by name, one fio job, snapshots of all counters around it.
# SYSTEM and the experiment's own settings come from /lab/settings.sh.
. /lab/settings.sh
. /lab/words.sh
mkdir -p /lab/out
forebay-lab cost

# LVM without a udev, and with our devices.
configure_lvm() {
    mkdir -p /etc/lvm /run/lvm /run/lock/lvm
    cat > /etc/lvm/lvm.conf <<'END'
devices { use_devicesfile=0 external_device_info_source="none" types=[ "ublkb", 16 ] }
activation { udev_sync=0 udev_rules=0 verify_udev_operations=0 }
backup { backup=0 archive=0 }
global { cache_check_executable="" }
END
}

# Virtio disks cannot say whether they rotate.
device_named() {
    for path in /sys/block/vd*; do
        [ "$(cat $path/serial)" = "$1" ] && basename $path && return
    done
    give_up "there is no device named $1"
}
HDD=$(device_named hdd)
SSD=$(device_named ssd)
SSD2=$(grep -lx ssd2 /sys/block/vd*/serial 2> /dev/null | cut -d / -f 4)
for path in /sys/block/vd*; do
    case $(cat $path/serial) in
    ssd*) echo 0 > $path/queue/rotational; echo none > $path/queue/scheduler ;;
    *) echo 1 > $path/queue/rotational; echo mq-deadline > $path/queue/scheduler ;;
    esac
done

# What a system adds to a snapshot: dirty data, and its own counters in its own words.
dirty_kib() { echo 0; }
counters() { :; }

snapshot() {
    echo "uptime $(cat /proc/uptime)"
    echo "cpu $(head -1 /proc/stat)"
    for path in /sys/block/vd*; do
        echo "device $(cat $path/serial) $(cat $path/stat)"
    done
    echo "dirty_kib $(dirty_kib)"
    counters | sed 's/^/counter /'
}

# What the kernel and the daemon know of a job that failed or that nobody answered.
evidence() {
    echo w > /proc/sysrq-trigger
    dmesg | tail -n 200
    grep . /sys/block/$(basename $TARGET)/inflight /sys/block/$(basename $TARGET)/stat
    tail -c 4000 /tmp/forebay
    for thread in /proc/${FOREBAY:-self}/task/*; do
        echo "$thread $(cat $thread/comm $thread/wchan)"
        cat $thread/stack
    done
    # Where each ring stands: what was submitted and not seen yet, what came and was not taken.
    for descriptor in $(ls -l /proc/${FOREBAY:-self}/fd | sed -n 's/.* \([0-9]*\) -> .*io_uring.*/\1/p'); do
        echo "ring $descriptor"
        head -n 24 /proc/$FOREBAY/fdinfo/$descriptor
    done
}

# A fio whose request nobody answers cannot be ended: the guest says what it knows, and goes off.
# end_at_silence EVIDENCE
end_at_silence() {
    queue=/sys/block/$(basename $TARGET)
    before=
    while sleep 30 && [ -d $queue ]; do
        answered=
        grep -q '[1-9]' $queue/inflight && answered=$(awk '{ print $1, $5 }' $queue/stat)
        if [ -n "$answered" ] && [ "$answered" = "$before" ]; then
            evidence > $1 2>&1
            fail "job $label: no request was answered for 30 s; see $1"
            poweroff -f
        fi
        before=$answered
    done
}

# job LABEL FIO-ARGUMENTS...
JOB=0
job() {
    label=$1
    shift
    JOB=$((JOB + 1))
    number=$(printf %02d $JOB)
    snapshot > /tmp/before
    end_at_silence /lab/out/$number-$label.silent &
    fio --name=$label --direct=1 --ioengine=libaio --clocksource=clock_gettime --randrepeat=1 --norandommap \
        --output-format=json --percentile_list=50:95:99:99.9 --output=/tmp/fio "$@" > /tmp/said 2>&1 ||
        { fail "job $label: $(said)"; evidence > /lab/out/$number-$label.failed 2>&1; }
    kill $!
    snapshot > /tmp/after
    cp /tmp/fio /lab/out/$number-$label.fio
    cp /tmp/before /lab/out/$number-$label.before
    cp /tmp/after /lab/out/$number-$label.after
    say "job $number $label $(now)"
}

# Dirty data over time, until the file /tmp/sampling goes.
sample_dirty() {
    touch /tmp/sampling
    while [ -e /tmp/sampling ]; do
        echo "$(now) $(dirty_kib)"
        sleep ${1:-1}
    done >> /tmp/dirty &
    SAMPLER=$!
}
stop_sampling() {
    rm -f /tmp/sampling
    wait $SAMPLER
    cp /tmp/dirty /lab/out/dirty
}

# Two disks in memory, for guests that count instructions. A place of such a disk is allocated when it is first written,
# which is not to be counted.
# disks_in_memory DISK...
MEMORY_DISK_MIB=672
disks_in_memory() {
    rmmod brd
    insmod /modules/brd.ko rd_nr=3 rd_size=$((MEMORY_DISK_MIB * 1024)) || give_up "no disks in memory"
    for disk in "$@"; do
        wipe $disk
    done
}
wipe() { dd if=/dev/zero of=/dev/$1 bs=1M count=$MEMORY_DISK_MIB conv=fsync 2> /dev/null; }

# count NAME KIB DEPTH OFFSET_MIB SIZE_MIB REQUESTS WARM ARGUMENTS...
count() {
    forebay-lab count $1 $TARGET --kib $2 --depth $3 --offset-mib $4 --size-mib $5 --requests $6 --warm $7 $8 2> /tmp/said || fail "count $1: $(said)"
}
