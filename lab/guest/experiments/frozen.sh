# A frozen volume over ublk: more writes than the daemon has memory for wait without it, and none fails; reads go on. A block
# device that a program has open without a claim stays; before Linux 7.0 one whose name for it is another does not keep it,
# and a hand-over ends all the same.
# The kernel has 128 tags for each queue: with all of them taken by writes no read would come to the daemon.
COMMIT="$COMMIT --memory 64M"
start
# writes SECONDS: in the background
writes() {
    fio --name=writes --filename=$TARGET --ioengine=libaio --direct=1 --rw=randwrite --bs=1m --iodepth=48 --numjobs=2 \
        --group_reporting --offset=64m --size=256m --time_based --runtime=$1 --output=/tmp/fio > /dev/null 2>&1 &
    FIO=$!
}
writes 20
sleep 2
check ask freeze volume --for never
sleep 8
kill -0 $FIO || give_up "the writers ended while the volume was frozen: $(tail -3 /tmp/fio | tr '\n' ' ')"
check timeout 20 fio --name=reads --filename=$TARGET --ioengine=libaio --direct=1 --rw=read --bs=1m --iodepth=16 --size=64m
grep -q '[1-9]' /sys/block/$(basename $TARGET)/inflight || fail "no write waits"
check ask thaw volume
wait $FIO || fail "the writers: $(grep -m1 err= /tmp/fio)"
kernel_complains && fail "$(head -2 /tmp/said)"
# kept_for WHOM COMMAND...: refused, because the device is open there, and the writers go on
kept_for() {
    whom=$1
    shift
    refused "open in $whom" ask "$@"
    kill -0 $FIO || give_up "$*: the writers ended: $(grep -m1 err= /tmp/fio)"
}
writes 600
sleep 2
for command in hand-over detach stop; do
    # stop names no volume.
    kept_for fio $command $([ $command = stop ] || echo volume)
done
kill $FIO; wait $FIO
# Of another name, the driver alone knows that it is open.
mknod /run/other b $(tr : ' ' < /sys/block/$(basename $TARGET)/dev)
TARGET=/run/other writes 600
sleep 2
case $(uname -r) in
[1-6].*) ;;
*)
    kept_for "another program" hand-over volume
    kill $FIO; wait $FIO
    ;;
esac
before=$(now)
check ask hand-over volume
say "value hand-over_seconds $(awk "BEGIN { print $(now) - $before }")"
[ ! -e $TARGET ] || fail "$TARGET is still there"
