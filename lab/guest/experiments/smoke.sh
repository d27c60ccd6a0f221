# One short job of writes and one of reads, then synced writes until the host cuts the power; in the second
# life every one of them must be there.
if [ $LIFE = 1 ]; then
    start
    job write --filename=$TARGET --rw=write --bs=128k --iodepth=4 --size=32m
    job read --filename=$TARGET --rw=randread --bs=4k --iodepth=8 --size=32m --time_based --runtime=500ms
    forebay-lab synced write $TARGET
else
    resume
    forebay-lab synced check $TARGET $SYNCED
fi
