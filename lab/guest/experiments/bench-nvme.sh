# bench/nvme.sh as an administrator runs it: it refuses what it must, measures every system twice and leaves the devices
# to others.
OUT=/lab/out/nvme
nvme() { sh /lab/nvme.sh --ssd /dev/$SSD --disk /dev/$HDD --span 64 --seconds 1 --out $OUT "$@"; }
export GUEST=/lab
refused "give --force" nvme
refused "no option is called --shard" nvme --force --shard 2
refused "a number above 0" nvme --force --seconds no
refused "the same device" nvme --force --disk /dev/$SSD
refused "wants twice as much" nvme --force --span 1000000
mkfs.ext4 -q /dev/$SSD && mount /dev/$SSD /mnt
refused "is mounted" nvme --force
umount /mnt

systems=hdd,ssd,forebay-ublk,forebay-nbd,bcache-all,dm-cache,dm-writecache
# measured ARGUMENTS...: into a file of its own, for it has others write to /tmp/said
measured() { nvme --force "$@" > /lab/out/nvme.said 2>&1 || give_up "$*: $(tail -n 4 /lab/out/nvme.said | tr '\n' ' ')"; }
measured --systems $systems,no-such --queues 1,2
grep -q "no-such was skipped: no system" $OUT/report.md || give_up "what was skipped is not in the report"
for system in $(echo $systems | tr ',' ' '); do
    same "figures of $system" 10 "$(grep -c "^$system," $OUT/figures.csv)"
    grep -q "^$system,2,read-4k,[1-9]" $OUT/figures.csv || give_up "no reads of $system: $(grep $system $OUT/figures.csv | tr '\n' ' ')"
    grep -q ">$system</text>" $OUT/read-4k.svg || give_up "$system is not in the plot"
done
# A second run finds nothing of the first in its way.
measured --systems forebay-ublk,bcache-all,dm-cache --queues 1
say "value nvme_rows $(wc -l < $OUT/figures.csv)"
