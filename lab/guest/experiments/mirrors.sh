# What a second copy of dirty data costs, and what a second SSD gains: 4 KiB over what is cached.
hits() { job $1-hit-depth-$2 --filename=$TARGET --rw=$1 --bs=4k --iodepth=$2 $near $timed; }
for pass in 7 8; do read_sequentially $pass; done
for depth in 1 32; do
    hits randread $depth
    hits randwrite $depth
done
