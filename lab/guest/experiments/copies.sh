# What a second copy of dirty data costs in latency, and what a second SSD gains, over 128 MiB that are cached. Short, for
# a large dilation: at the usual one the host's own time for a request to a second device counts.
start
near="--offset=1g --size=128m"
timed="--time_based --runtime=${MILLISECONDS}ms"
for pass in 1 2; do job read-$pass --filename=$TARGET --rw=read --bs=128k --iodepth=1 $near; done
hits() { job $1-depth-$2 --filename=$TARGET --rw=$1 --bs=4k --iodepth=$2 $near $timed; }
for depth in 32 128; do hits randread $depth; done
for depth in 1 32; do hits randwrite $depth; done
job write-128k --filename=$TARGET --rw=write --bs=128k --iodepth=1 --offset=2g --size=64m
