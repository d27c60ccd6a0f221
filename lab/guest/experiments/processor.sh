# Processor time per request: everything is a hit, and the devices are memory, so that nothing else is there to be
# measured. What `hdd` takes is fio's and the block layer's share.
rmmod brd
insmod /modules/brd.ko rd_nr=2 rd_size=$((1024 * 1024)) || give_up "no disks in memory"
use_devices ram0 ram1
start
# Little enough that nothing is written back meanwhile. Short writes put it into the cache of every system; long ones
# may pass Forebay by.
part="--filename=$TARGET --offset=128m --size=64m"
timed="--bs=4k --time_based --runtime=${MILLISECONDS}ms"
for pass in 1 2 3 4; do
    fio --name=fill --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --iodepth=32 $part > /tmp/said 2>&1 || give_up "filling: $(tail -1 /tmp/said)"
done
for depth in 1 32; do
    job read-hit-depth-$depth $part $timed --rw=randread --iodepth=$depth
    job write-hit-depth-$depth $part $timed --rw=randwrite --iodepth=$depth
done
