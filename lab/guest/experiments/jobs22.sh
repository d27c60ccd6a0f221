# The 22 jobs of the comparison of 2015, their sizes scaled to a cache of 2 GiB.
start
near="--offset=1g --size=256m"
far="--offset=12g --size=256m"
[ $SYSTEM = ssd ] && far="--offset=8704m --size=256m"
timed="--time_based --runtime=${MILLISECONDS}ms"

read_sequentially() { job read-$1 --filename=$TARGET --rw=read --bs=128k --iodepth=1 $near; }
read_randomly() {
    job randread-$1-depth-1 --filename=$TARGET --rw=randread --bs=4k --iodepth=1 $near $timed
    job randread-$1-depth-32 --filename=$TARGET --rw=randread --bs=4k --iodepth=32 $near $timed
}

for pass in 1 2 3; do read_sequentially $pass; done
read_randomly 1
job write-0 --filename=$TARGET --rw=write --bs=128k --iodepth=1 --offset=2g --size=128m
for part in 1 2 3 4 5 6 7 8; do
    job write-$part --filename=$TARGET --rw=write --bs=128k --iodepth=1 --offset=$((4096 + (part - 1) * 512))m --size=512m
done
for pass in 4 5 6; do read_sequentially $pass; done
read_randomly 2
job mixed --filename=$TARGET --rw=randrw --rwmixread=67 --bs=8k --iodepth=32 $near $timed
job randwrite-depth-1 --filename=$TARGET --rw=randwrite --bs=4k --iodepth=1 $far $timed
job randwrite-depth-32 --filename=$TARGET --rw=randwrite --bs=4k --iodepth=32 $far $timed
