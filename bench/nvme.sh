#!/bin/sh
# Forebay beside the kernel's caches on real devices with many processors: requests a second, latencies, processor time,
# and how they grow with the number of queues. Root only. Everything on the two devices is lost.
#
#   bench/nvme.sh --ssd DEV --disk DEV --force [--systems LIST] [--queues LIST] [--seconds N] [--span MIB] [--out DIR]
#
# The systems are set up by lab/guest/systems.sh, as in the lab. What the kernel or the machine lacks is skipped with its
# reason. The report is DIR/report.md, with a plot beside it, and DIR/figures.csv has every figure.
set -u
HERE=$(dirname "$(readlink -f "$0")")
GUEST=${GUEST:-$HERE/../lab/guest}
PATH=$HERE/../target/release:$PATH

usage() {
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 2
}
refuse() {
    echo "nvme.sh: $*" >&2
    exit 3
}
say_what() { echo "nvme.sh: $*" >&2; }

SSD_PATH= DISK_PATH= FORCE= SECONDS_EACH=10 SPAN_MIB=4096 OUT=nvme-report
SYSTEMS=hdd,ssd,forebay-ublk,forebay-nbd,bcache-all,dm-cache,dm-writecache
QUEUES=
while [ $# -gt 0 ]; do
    case $1 in
    --ssd) SSD_PATH=${2:-} ;;
    --disk) DISK_PATH=${2:-} ;;
    --systems) SYSTEMS=${2:-} ;;
    --queues) QUEUES=${2:-} ;;
    --seconds) SECONDS_EACH=${2:-} ;;
    --span) SPAN_MIB=${2:-} ;;
    --out) OUT=${2:-} ;;
    --force) FORCE=yes && shift && continue ;;
    --help | -h) usage ;;
    *) echo "nvme.sh: no option is called $1" >&2 && usage ;;
    esac
    [ $# -ge 2 ] || refuse "$1 wants a value"
    shift 2
done
[ -n "$SSD_PATH" ] && [ -n "$DISK_PATH" ] || usage
[ "$(id -u)" = 0 ] || refuse "only root can set caches up"

# ---- refuse before anything is written ----
whole_number() { case $2 in '' | *[!0-9]* | 0) refuse "$1 wants a number above 0, and not '$2'" ;; esac; }
whole_number --seconds "$SECONDS_EACH"
whole_number --span "$SPAN_MIB"
for device in "$SSD_PATH" "$DISK_PATH"; do
    [ -b "$device" ] || refuse "$device is no block device"
done
SSD=$(basename "$(readlink -f "$SSD_PATH")")
HDD=$(basename "$(readlink -f "$DISK_PATH")")
[ "$SSD" != "$HDD" ] || refuse "--ssd and --disk are the same device, /dev/$SSD"
mib_of() { echo $(($(cat /sys/class/block/$1/size) / 2048)); }
for device in $SSD $HDD; do
    grep -q "^/dev/$device[p0-9]* " /proc/mounts && refuse "/dev/$device, or a partition of it, is mounted"
    [ -z "$(ls /sys/class/block/$device/holders 2> /dev/null)" ] || refuse "/dev/$device is in use by $(ls /sys/class/block/$device/holders)"
    [ "$(mib_of $device)" -ge $((SPAN_MIB * 2)) ] || refuse "/dev/$device has $(mib_of $device) MiB: --span $SPAN_MIB wants twice as much"
done
for used in /dev/ublkb0 /dev/bcache0 /run/forebay.control; do
    [ ! -e $used ] || refuse "$used is there already: stop what uses it"
done
for name in cached metadata data; do
    ! dmsetup info $name > /dev/null 2>&1 || refuse "there is a device-mapper device called $name already: remove it"
done
command -v fio > /dev/null || refuse "fio is not installed"
[ -n "$FORCE" ] || refuse "everything on /dev/$SSD ($(mib_of $SSD) MiB) and /dev/$HDD ($(mib_of $HDD) MiB) would be lost; give --force for that"
CPUS=$(grep -c ^processor /proc/cpuinfo)
if [ -z "$QUEUES" ]; then
    QUEUES=1 queues=2
    while [ $queues -le $CPUS ] && [ $queues -le 16 ]; do QUEUES=$QUEUES,$queues queues=$((queues * 2)); done
fi
each() { echo "$1" | tr ',' ' '; }
for queues in $(each "$QUEUES"); do whole_number --queues $queues; done
mkdir -p "$OUT" || refuse "cannot make $OUT"
FIGURES=$OUT/figures.csv
echo "system,queues,job,iops,mib_s,p50_us,p99_us,cpu_us" > "$FIGURES"
: > "$OUT/skipped"

# ---- what the machine lacks ----
wants_program() { command -v "$1" > /dev/null || echo "$1 is not installed"; }
# wants_kernel WHAT MODULE TEST: loads the module, if it is one, and says if the kernel still has no such thing
wants_kernel() {
    modprobe "$2" 2> /dev/null
    eval "$3" || echo "the kernel has no $1"
}
has_target() { dmsetup targets 2> /dev/null | grep -q "^$1 "; }
lacks() {
    case $1 in
    hdd | ssd) ;;
    bcache | bcache-all | bcache-wt)
        wants_program make-bcache
        wants_kernel bcache bcache '[ -d /sys/fs/bcache ]'
        ;;
    dm-cache | dm-cache-wt)
        wants_program dmsetup
        wants_kernel dm-cache dm_cache_smq 'has_target cache'
        ;;
    dm-writecache)
        wants_program dmsetup
        wants_kernel dm-writecache dm_writecache 'has_target writecache'
        ;;
    forebay-ublk)
        wants_program forebay
        wants_kernel ublk ublk_drv '[ -e /dev/ublk-control ]'
        ;;
    forebay-nbd)
        wants_program forebay
        wants_program nbd-client
        wants_kernel nbd nbd '[ -b /dev/nbd0 ]'
        ;;
    *) echo "no system is called $1 here" ;;
    esac | tr '\n' ' '
}

# ---- one job ----
# Ticks in which a processor worked, of all processors.
busy_ticks() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 }' /proc/stat; }
TICKS_PER_SECOND=$(getconf CLK_TCK 2> /dev/null || echo 100)

# run_fio NAME ARGUMENTS...: over the span of the device
run_fio() {
    run=$1
    shift
    fio --name="$run" --filename="$TARGET" --direct=1 --ioengine=libaio --size="${SPAN_MIB}m" "$@" > /tmp/nvme-fio 2>&1 ||
        give_up "fio $run: $(tail -c 300 /tmp/nvme-fio | tr '\n' ' ')"
}

# job NAME QUEUES FIO-ARGUMENTS...: as many clients as queues, each with its own place in the span
job() {
    name=$1 queues=$2
    shift 2
    before=$(busy_ticks)
    run_fio "$name" --norandommap --randrepeat=0 --numjobs="$queues" --group_reporting --time_based --runtime="$SECONDS_EACH" \
        --percentile_list=50:99 --output-format=terse --terse-version=3 "$@"
    after=$(busy_ticks)
    grep '^3;' /tmp/nvme-fio | awk -F ';' -v cache="$SYSTEM" -v queues="$queues" -v job="$name" \
        -v ticks=$((after - before)) -v rate="$TICKS_PER_SECOND" '
        function percentile(field) { split(field, parts, "="); return parts[2] }
        { at = $8 > 0 ? 0 : 41
          iops = $(8 + at); runtime = $(9 + at) / 1000; requests = iops * runtime
          printf "%s,%d,%s,%d,%.1f,%d,%d,%.2f\n", cache, queues, job, iops, $(7 + at) / 1024, percentile($(18 + at)),
              percentile($(19 + at)), requests ? ticks / rate * 1e6 / requests : 0 }' | tee -a "$FIGURES" >&2
}

# What is read later is in the cache: written through it, and read often enough for one that wants to see it again.
fill() {
    run_fio fill --rw=write --bs=128k --iodepth=8
    run_fio warm --rw=read --bs=128k --iodepth=8 --loops=3
}

jobs_of() {
    [ "$1" = "$(each "$QUEUES" | cut -d ' ' -f 1)" ] && {
        job read-4k-depth-1 1 --rw=randread --bs=4k --iodepth=1
        job write-4k-depth-1 1 --rw=randwrite --bs=4k --iodepth=1
    }
    job read-4k "$1" --rw=randread --bs=4k --iodepth=32
    job write-4k "$1" --rw=randwrite --bs=4k --iodepth=32
    job read-128k "$1" --rw=randread --bs=128k --iodepth=8
    job write-128k "$1" --rw=randwrite --bs=128k --iodepth=8
}

# ---- the systems ----
forebay_create() { forebay create "/dev/$SSD" --shards "$@" --force < /dev/null > /tmp/nvme-said 2>&1; }
forebay_with() {
    # It wants to be told what is lost, in its words; that was asked for already.
    forebay_create "$1" || forebay_create "$1" --yes-lose "$(sed -n 's/.*--yes-lose "\(.*\)".*/\1/p' /tmp/nvme-said)" ||
        give_up "forebay create: $(tail -1 /tmp/nvme-said)"
    shards=$1
    case $SYSTEM in
    *-nbd*) forebay_nbd --mode writeback --threads "$shards" ;;
    *) forebay_ublk --mode writeback --threads "$shards" ;;
    esac
}

ended() {
    tries=0
    while eval "$1"; do
        tries=$((tries + 1))
        [ $tries -gt 600 ] && refuse "$SYSTEM does not go away: $1"
        sleep 0.1
    done
}

take_down() {
    case $SYSTEM in
    forebay-*)
        [ "$TARGET" = /dev/nbd0 ] && nbd-client -d /dev/nbd0 > /dev/null 2>&1
        forebay stop --control /run/forebay.control > /dev/null 2>&1
        ended '[ -e /run/forebay.control ] || [ -e /dev/ublkb0 ]'
        rm -rf /run/state
        ;;
    bcache*)
        echo 1 > /sys/block/bcache0/bcache/stop
        ended '[ -e /sys/block/bcache0 ]'
        for set in /sys/fs/bcache/*-*; do echo 1 > "$set/stop"; done
        ended 'ls -d /sys/fs/bcache/*-* > /dev/null 2>&1'
        ;;
    dm-*)
        for name in cached metadata data; do
            ! dmsetup info $name > /dev/null 2>&1 || dmsetup remove --noudevsync --retry $name > /dev/null
        done
        dmsetup mknodes
        ;;
    esac
    # Nobody finds the cache again.
    for device in $SSD $HDD; do dd if=/dev/zero of=/dev/$device bs=1M count=2 conv=fsync 2> /dev/null; done
}

# Runs in a shell of its own: what the system's functions leave is gone with it.
measure() (
    SYSTEM=$1 queues=$2
    SSD2= TARGET= MODE= COMMIT=
    set +u
    . "$GUEST/words.sh"
    . "$GUEST/systems.sh"
    trap 'take_down' EXIT
    trap 'exit 130' INT TERM
    case $SYSTEM in
    forebay-*) forebay_with "$queues" ;;
    *) start > /dev/null ;;
    esac
    fill
    jobs_of "$queues"
)

FAILED=
for SYSTEM in $(each "$SYSTEMS"); do
    why=$(lacks "$SYSTEM")
    if [ -n "$why" ]; then
        say_what "skipped $SYSTEM: $why"
        echo "- $SYSTEM was skipped: $why" >> "$OUT/skipped"
        continue
    fi
    for queues in $(each "$QUEUES"); do
        say_what "$SYSTEM with $queues queue(s)"
        measure "$SYSTEM" "$queues" || { FAILED=yes && echo "- $SYSTEM failed with $queues queue(s)" >> "$OUT/skipped"; }
    done
done

# ---- the report ----
table() {
    awk -F , -v job="$1" '
        $3 == job { if (!($1 in row)) order[++systems] = $1
                    row[$1] = row[$1] sprintf("| %s | %d | %d | %.0f | %d | %d | %.2f |\n", $1, $2, $4, $5, $6, $7, $8) }
        END { print "| system | queues | requests/s | MiB/s | p50 µs | p99 µs | processor µs a request |"
              print "|---|---:|---:|---:|---:|---:|---:|"
              for (i = 1; i <= systems; i++) printf "%s", row[order[i]] }' "$FIGURES"
}

# plot JOB: requests a second by the number of queues, a line for each system
plot() {
    awk -F , -v job="$1" '
        $3 == job { if (!($1 in first)) { order[++systems] = $1; first[$1] = 1 }
                    at[$1, ++count[$1]] = $2 " " $4; if ($2 > widest) widest = $2; if ($4 > highest) highest = $4 }
        END { split("#1b6ca8 #c0392b #27ae60 #8e44ad #d68910 #16a085 #555555 #a04000", colours, " ")
              print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"420\" font-family=\"sans-serif\" font-size=\"13\">"
              printf "<text x=\"60\" y=\"20\">%s: requests a second by queues</text>\n", job
              print "<path d=\"M60 40V370H560\" fill=\"none\" stroke=\"black\"/>"
              printf "<text x=\"55\" y=\"45\" text-anchor=\"end\">%d</text><text x=\"55\" y=\"374\" text-anchor=\"end\">0</text>\n", highest
              printf "<text x=\"560\" y=\"390\" text-anchor=\"end\">%d queues</text>\n", widest
              for (i = 1; i <= systems; i++) {
                  name = order[i]; points = ""
                  for (k = 1; k <= count[name]; k++) { split(at[name, k], xy, " ")
                      points = points sprintf("%.0f,%.0f ", 60 + 500 * xy[1] / widest, 370 - 330 * xy[2] / (highest ? highest : 1)) }
                  printf "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", points, colours[i]
                  printf "<text x=\"580\" y=\"%d\" fill=\"%s\">%s</text>\n", 40 + 20 * i, colours[i], name }
              print "</svg>" }' "$FIGURES" > "$OUT/$1.svg"
}

model_of() { cat /sys/class/block/$1/device/model /sys/class/block/$1/../device/model 2> /dev/null | head -1 | sed 's/ *$//'; }
{
    echo "# Forebay and the kernel's caches on this machine"
    echo
    echo "- date: $(date -u +%Y-%m-%d)"
    echo "- kernel: $(uname -r)"
    echo "- processors: $CPUS, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
    echo "- memory: $(awk '/^MemTotal/ { printf "%d MiB", $2 / 1024 }' /proc/meminfo)"
    echo "- SSD: /dev/$SSD, $(model_of $SSD) $(mib_of $SSD) MiB"
    echo "- disk: /dev/$HDD, $(model_of $HDD) $(mib_of $HDD) MiB"
    echo "- Forebay: $(forebay --version 2> /dev/null)"
    echo "- span: $SPAN_MIB MiB, $SECONDS_EACH s a job, all of it cached before"
    cat "$OUT/skipped"
    for name in read-4k-depth-1 write-4k-depth-1 read-4k write-4k read-128k write-128k; do
        printf '\n## %s\n\n' "$name"
        table "$name"
    done
    for name in read-4k write-4k; do
        plot "$name"
        printf '\n![%s](%s.svg)\n' "$name" "$name"
    done
} > "$OUT/report.md"
say_what "the report is $OUT/report.md"
[ -z "$FAILED" ]
