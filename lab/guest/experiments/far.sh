# An image that an NBD server has 1 ms away, a local SSD in front of it: what is read again, and synced writes. The
# kernel's NBD client is between in each case. `hdd` is the image alone.
MEMORY_DISK_MIB=256
disks_in_memory ram0
nbdkit -f -t 64 -U /run/server.sock --filter=delay file file=/dev/ram0 rdelay=1ms wdelay=1ms > /tmp/nbdkit 2>&1 &
wait_for /run/server.sock /tmp/nbdkit
nbd_connect /run/server.sock "" 1 /tmp/nbdkit
use_devices nbd0 $SSD
start

near="--offset=64m --size=64m"
timed="--time_based --runtime=${MILLISECONDS}ms"
# Whatever the caches let in only when it comes again.
for pass in 1 2 3 4; do job read-$pass --filename=$TARGET --rw=read --bs=128k --iodepth=4 $near; done
for depth in 1 32; do job random-read-$depth --filename=$TARGET --rw=randread --bs=4k --iodepth=$depth $near $timed; done
job synced-write --filename=$TARGET --rw=randwrite --bs=4k --iodepth=1 --fsync=1 $near $timed
job synced-write-elsewhere --filename=$TARGET --rw=randwrite --bs=4k --iodepth=1 --fsync=1 --offset=128m --size=128m $timed
