# The test of the EnhanceIO announcement of 2012: a skewed mix of nine reads to one write over data five times the
# cache, after reading to warm it up.
start
load="--filename=$TARGET --bs=4k --iodepth=8 --numjobs=4 --group_reporting --random_distribution=zipf:1.2 --size=2g --time_based"
sample_dirty 1
job warm-up $load --rw=randread --runtime=$((MILLISECONDS * 3 / 2))ms
job mixed-1 $load --rw=randrw --rwmixread=90 --runtime=${MILLISECONDS}ms
job mixed-2 $load --rw=randrw --rwmixread=90 --runtime=${MILLISECONDS}ms
stop_sampling
