# Requests that nobody copies, under verified load: hits with `verify = background`, then a volume in passthrough. Some
# memory begins in the middle of a page, and the daemon is killed meanwhile. A kernel before 6.16 copies all of it.
start
KILLS=10
counted() { forebay_status | sed -n 's/.*"straight_requests": *\([0-9]*\).*/\1/p'; }
# verified NAME FIO-ARGUMENTS...: what was written is read again and compared, and most of it goes straight
verified() {
    name=$1
    shift
    before=$(counted)
    check fio --name=$name --filename=$TARGET --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --randrepeat=1 "$@"
    went=$(($(counted) - before))
    say "value straight_$name $went"
    case $(uname -r) in
    6.[0-9].*|6.1[0-5].*) [ $went = 0 ] || fail "$name: $went requests went straight on this kernel" ;;
    *) [ $went -gt $LEAST ] || fail "$name: only $went requests went straight" ;;
    esac
}
each() {
    LEAST=8000 verified $1_4k --rw=randwrite --bs=4k --iodepth=32 --offset=64m --size=64m
    LEAST=200 verified $1_128k --rw=randwrite --bs=128k --iodepth=16 --offset=128m --size=64m
    # Hits go straight in whole blocks alone.
    LEAST=$2 verified $1_any --rw=randwrite --bsrange=512-128k --blockalign=512 --iodepth=16 --iomem_align=512 --offset=192m --size=32m
}
# The daemon ends ten times under load, and what it had not answered comes again.
kills() {
    fio --name=$1 --filename=$TARGET --ioengine=libaio --direct=1 --rw=randrw --bsrange=4k-64k --iodepth=8 --offset=256m --size=16m \
        --verify=crc32c --verify_fatal=1 --loops=100000 --output=/tmp/fio > /dev/null 2>&1 &
    FIO=$!
    for kill in $(seq $KILLS); do
        sleep 1.$((kill % 10))
        kill -9 $FOREBAY
        wait $FOREBAY 2> /dev/null
        forebay_serve --ublk --verify background
        until forebay devices 2> /dev/null | grep -q "served by process $FOREBAY"; do
            kill -0 $FOREBAY 2> /dev/null || give_up "no daemon after kill $kill: $(tail -1 /tmp/forebay)"
            sleep 0.05
        done
        kill -0 $FIO || give_up "fio ended after kill $kill: $(tail -3 /tmp/fio | tr '\n' ' ')"
    done
    sleep 2
    say "value straight_$1 $(counted)"
    kill -INT $FIO
    wait $FIO
    grep -q "err= 0" /tmp/fio || fail "fio: $(grep -m1 err= /tmp/fio)"
}
check ask set verify background
sleep 2
each hits -1
kills kills_hits
check ask drain volume
check ask mode volume passthrough
sleep 2
each passthrough 200
kills kills_passthrough
kernel_complains && fail "$(head -2 /tmp/said)"
:
