# Hits of 4 KiB by one client beside a daemon of one thread, both on one processor, and by two clients beside one of two
# threads and shards, on two. Disk and SSD are memory. A client reads where its own shard is, every other 8 MiB, or anywhere.
# The disk alone tells what a second processor of this machine gives.
MEMORY_DISK_MIB=512
# Ten places of 8 MiB for each of two shards.
SIZE=160m
timed="--direct=1 --ioengine=libaio --bs=4k --iodepth=32 --time_based --runtime=${MILLISECONDS}ms --norandommap --clocksource=clock_gettime"
# places PERCENT PERCENT: what every other 8 MiB of SIZE gets of the requests, from the first and from the second on
places() { printf "zoned_abs$(printf ":$1/8m:$2/8m%.0s" 1 2 3 4 5 6 7 8 9 10)"; }
# client PROCESSOR DIRECTION WHERE
client() {
    where=""
    # Strides by fio's zones would leave SIZE.
    [ $3 = own ] && where="--random_distribution=$([ $1 = 0 ] && places 10 0 || places 0 10)"
    echo "--name=on-$1 --filename=$TARGET --cpus_allowed=$1 --rw=$2 $timed --size=$SIZE $where"
}
# rate DIRECTION WHERE CLIENTS: requests a second, of all clients, in RATE
rate() {
    jobs=$(client 0 $1 $2)
    [ $3 = 2 ] && jobs="$jobs $(client 1 $1 $2)"
    fio --output-format=terse --terse-version=3 --output=/tmp/fio $jobs > /tmp/said 2>&1 || give_up "fio: $(said)"
    RATE=$(awk -F';' '{ sum += $8 + $49 } END { printf "%d", sum }' /tmp/fio)
}
serve() {
    disks_in_memory $HDD $SSD
    check forebay create /dev/$SSD --shards $1
    forebay_ublk --mode writeback --threads $1
    [ $1 = 1 ] && check taskset -a -p -c 0 $FOREBAY
    # Long writes may pass the cache by.
    check fio --name=fill --filename=$TARGET --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --iodepth=32 --size=$SIZE
}
status_of() { forebay_status | sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p"; }
unserve() {
    hit=$(status_of read_blocks_hit)
    say "value forebay-hit-percent_$1 $(awk "BEGIN { printf \"%.1f\", 100 * $hit / ($hit + $(status_of read_blocks_missed)) }")"
    kill $FOREBAY
    wait $FOREBAY || fail "the daemon ended with $?"
}
# rates THREADS: each rate by a name of its own, and what a second processor gives
rates() {
    for kind in $KINDS; do
        rate ${kind%-*} ${kind#*-} $1
        say "value $WHAT-${kind}_$1 $RATE"
        [ $1 = 1 ] && eval "one_$(echo $kind | tr - _)=$RATE" && continue
        eval "one=\$one_$(echo $kind | tr - _)"
        say "value $WHAT-${kind}_speed_up $(awk "BEGIN { printf \"%.2f\", $RATE / $one }")"
    done
}
KINDS="randread-own randwrite-own"
WHAT=bare
use_devices ram0 ram1
disks_in_memory $HDD $SSD
TARGET=/dev/$HDD
for processors in 1 2; do
    rates $processors
done
WHAT=forebay
KINDS="randread-own randwrite-own randread-all"
for threads in 1 2; do
    serve $threads
    rates $threads
    unserve $threads
done
say "started $SYSTEM $TARGET $(now)"
