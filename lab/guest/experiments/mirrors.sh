# What a second copy of dirty data costs, and what a second SSD gains: 4 KiB over what is cached.
hits() { job $1-hit-depth-$2 --filename=$TARGET --rw=$1 --bs=4k --iodepth=$2 $near $timed; }
for pass in 7 8; do read_sequentially $pass; done
for depth in 1 32; do
    hits randread $depth
    hits randwrite $depth
done
# Room for clean data on the two SSDs.
case $SYSTEM in
    dm-cache*) dmsetup status cached | awk -v block=$DM_BLOCK '{ split($7, blocks, "/"); print blocks[2] * block * 512 }' ;;
    *) forebay_status | sed -n 's/.*"capacity_bytes": *\([0-9]*\).*/\1/p' ;;
esac > /tmp/said
say "value capacity_bytes $(cat /tmp/said)"
