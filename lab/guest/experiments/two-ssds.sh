# Dirty data is on two SSDs. One of them is pulled under verified load on ext4 and xfs, put back as a new one and copied
# to, then the other, again and again. At the end of each life one is pulled, or being copied to, when the power is cut.
PULLS=25
FILES_MIB=512
KINDS="ext4 xfs"

trouble() { tail -c 600 /tmp/forebay | tr '\n' ' '; }
give_up() {
    fail "$@"
    cp /tmp/forebay /lab/out/forebay
    exit 1
}
ssd_named() {
    for path in /sys/block/vd*; do
        [ "$(cat $path/serial)" = "$1" ] && basename $path
    done
}
# The kernel lets go of the device: requests in progress end, and all later ones fail.
pull() {
    OUT=$(ssd_named $1)
    echo 1 > "$(readlink -f /sys/block/$OUT/device/..)/remove"
}
put_back() {
    echo 1 > /sys/bus/pci/rescan
    until_is "the SSD $1, put back, by name" 1 "ssd_named $1 | wc -l"
    BACK=$(ssd_named $1)
    echo 0 > /sys/block/$BACK/queue/rotational
    echo none > /sys/block/$BACK/queue/scheduler
}
lost() {
    kill -0 $FOREBAY 2> /dev/null || give_up "the daemon ended: $(trouble)"
    ask status --json | tr -d '\n' | grep -c '"lost": *\[ *{'
}
exposed() { ask status --json | sed -n 's/.*"exposed_bytes": *\([0-9]*\).*/\1/p'; }

# table KIND: its place behind that of the synced writes
table() {
    case $1 in ext4) first=4194304 ;; xfs) first=5767168 ;; esac
    echo "0 $((FILES_MIB * 2048)) linear $TARGET $first"
}
use_files() {
    for kind in $KINDS; do
        dmsetup --noudevsync create $kind --table "$(table $kind)" && dmsetup mknodes || give_up "no device for $kind"
        [ $LIFE = 1 ] && case $kind in
        ext4) check mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/ext4 ;;
        xfs) check mkfs.xfs -q -f /dev/mapper/xfs ;;
        esac
        mkdir -p /files/$kind
        check mount /dev/mapper/$kind /files/$kind
    done
}
check_files() {
    for kind in $KINDS; do check umount /files/$kind; done
    check e2fsck -fn /dev/mapper/ext4
    check xfs_repair -n /dev/mapper/xfs
}

load() {
    for kind in $KINDS; do
        fio --name=$kind --directory=/files/$kind --rw=randrw --rwmixread=30 --bsrange=4k-64k --iodepth=8 --size=48m --ioengine=libaio \
            --direct=1 --fsync=16 --verify=crc32c --verify_fatal=1 --loops=100000 --output-format=json --output=/tmp/fio-$kind > /dev/null 2>&1 &
        eval "FIO_$kind=$!"
    done
}
still_going() {
    kill -0 $FOREBAY 2> /dev/null || give_up "the daemon ended $1: $(trouble)"
    for kind in $KINDS; do
        eval "pid=\$FIO_$kind"
        kill -0 $pid 2> /dev/null || give_up "fio on $kind ended $1: $(tail -3 /tmp/fio-$kind | tr '\n' ' '); $(tail -3 /tmp/forebay | tr '\n' ' ')"
    done
}
stop_load() {
    kill -INT $FIO_ext4 $FIO_xfs
    wait $FIO_ext4 $FIO_xfs
    for kind in $KINDS; do
        grep -q '"error" : 0' /tmp/fio-$kind || fail "fio on $kind: $(grep -m1 '"error"' /tmp/fio-$kind)"
    done
    say "value longest_stall_seconds $(awk '/"lat_ns"/ { in_it = 1 } in_it && /"max"/ { gsub(/[^0-9]/, ""); if ($0 / 1e9 > most) most = $0 / 1e9; in_it = 0 } END { print most }' /tmp/fio-ext4 /tmp/fio-xfs)"
}

# By turns, so that each of them is the only one with the newest data once.
pulls=0
pull_and_replace() {
    case $(((LIFE + pulls) % 2)) in 0) ssd=ssd ;; *) ssd=ssd2 ;; esac
    pull $ssd
    sleep 0.2
    still_going "after pull $pulls of $ssd"
    until_is "the number of lost SSDs" 1 lost
    still_going "after pull $pulls of $ssd"
    put_back $ssd
    began=$(now)
    check ask cache replace /dev/$OUT /dev/$BACK --force
    say "value replace_seconds $(awk -v from=$began -v to=$(now) 'BEGIN { print to - from }')"
    still_going "after $ssd was replaced"
    same "data on one SSD" 0 "$(exposed)"
    pulls=$((pulls + 1))
}

if [ $LIFE = 1 ]; then
    forebay_ublk --create --mode writeback --cache /dev/$(ssd_named ssd2) --copies 2
else
    forebay_ublk --cache /dev/$(ssd_named ssd2)
    forebay-lab synced check $TARGET $SYNCED
    say "value lost_at_start $(lost)"
fi
say "started $SYSTEM $TARGET $(now)"
use_files
# The daemon came up without one. It knows which if that one is there; after a cut in a replacement its device is the
# new one already, and the lost one has no path any more.
if [ "$(lost)" = 1 ]; then
    out=$(ask status --json | tr -d '\n' | sed -n 's/.*"lost": *\[[^]]*"path": *"\([^"]*\)".*/\1/p')
    if [ -n "$out" ]; then
        check ask cache replace $out $out --force
    else
        until_is "data on one SSD" 0 exposed
        check ask cache remove /dev/gone
    fi
    same "the number of lost SSDs" 0 "$(lost)"
fi
load
while [ $pulls -lt $PULLS ]; do
    sleep 0.$((pulls % 10))
    pull_and_replace
done
stop_load
say "value pulls $pulls"
say "value dirty_kib_at_the_end $(dirty_kib)"
check_files
ask status --json > /tmp/said 2>&1 || fail "no status: $(said)"

if [ $LIFE != $LAST_LIFE ]; then
    # The power is cut 3 to 6 seconds of the host's after the first report of synced writes.
    case $LIFE in
    1) (sleep 0.2; pull ssd2) & ;;
    2) pull ssd; until_is "the number of lost SSDs" 1 lost; put_back ssd; (sleep 0.2; ask cache replace /dev/$OUT /dev/$BACK --force > /dev/null 2>&1) & ;;
    *) pull ssd2; until_is "the number of lost SSDs" 1 lost ;;
    esac
    forebay-lab synced write $TARGET $SYNCED
fi
