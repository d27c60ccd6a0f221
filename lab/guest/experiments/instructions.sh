# Instructions of the whole guest for each request: this guest's clock moves by a nanosecond for each. The devices are
# memory, so that nobody waits. What `hdd` takes is the client's and the block layer's share.
second=
[ $SYSTEM = forebay-ublk-copies ] && second=ram2
disks_in_memory ram0 ram1 $second
use_devices ram0 ram1 $second
start

# Whatever the caches let in only when it comes again.
fill() {
    for pass in 1 2 3 4; do
        count filled 64 4 $1 $2 $(($2 * 16)) 0 --write > /tmp/filled
    done
}
each() {
    count $1-4k-depth-1 4 1 $2 $3 $4 4000 $6
    count $1-4k-depth-32 4 32 $2 $3 $4 4000 $6
    count $1-128k-depth-1 128 1 $2 $3 $5 500 $6
    count $1-128k-depth-32 128 32 $2 $3 $5 500 $6
}
# Little enough that nothing is written back meanwhile.
fill 128 64
# Until then a kernel that has just booted counts two to three times as much.
sleep 20
each read-hit 128 64 8000 1500
# Hits whose checksums nobody compares meanwhile, which need no copy where the kernel can.
verify() { forebay set verify $1 --control /run/forebay.control > /tmp/said 2>&1 || give_up "verify = $1: $(said)"; }
case $SYSTEM in
forebay*)
    verify background
    # The daemon looks at what may go straight once a second.
    sleep 2
    each read-hit-background 128 64 8000 1500
    verify always
    ;;
esac
each write-hit 128 64 8000 1500 --write
# Places that nobody asked for before, each once.
count read-miss-4k-depth-1 4 1 256 64 8000 4000
count read-miss-4k-depth-32 4 32 320 64 8000 4000
case $SYSTEM in
hdd) bypass() { :; } ;;
bcache*) bypass() { bcache_mode none; } ;;
forebay*) bypass() { forebay drain volume --control /run/forebay.control > /tmp/said 2>&1 && forebay mode volume passthrough --control /run/forebay.control > /tmp/said 2>&1 || give_up "passthrough: $(said)"; } ;;
*) exit 0 ;;
esac
bypass
sleep 2
each read-bypass 384 256 8000 1500
each write-bypass 384 256 8000 1500 --write
