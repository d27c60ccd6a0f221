# recipes/proxmox.md without Proxmox VE: what its storages lie on, made on a volume, and found again by the next daemon.
make_partitions
cp /lab/package/forebay_*.deb .
block recipes/proxmox.md 1
same "the service" active $(state forebay@ssd)
is_served guests

block recipes/proxmox.md 2
same "the pool" thin-pool $(lvs --noheadings -o segtype guests/data | tr -d ' ')
same "what the group lies on" $(readlink -f /dev/forebay/guests) $(readlink -f $(pvs --noheadings -o pv_name | tr -d ' '))
# The group is on the disk as well, and LVM does not look there.
check forebay drain guests
# A disk of a guest, as Proxmox makes it.
check lvcreate --type thin --thinpool guests/data --virtualsize 4G --name vm-100-disk-0
put_files /dev/guests/vm-100-disk-0
check systemctl restart forebay@ssd
check mount /dev/guests/vm-100-disk-0 /mnt
found_again /mnt/old
check umount /mnt
check vgremove --yes guests
check pvremove /dev/forebay/guests

block recipes/proxmox.md 3
same "the mounted device" $(readlink -f /dev/forebay/guests) $(findmnt -no SOURCE /srv/guests)
dd if=/dev/urandom of=/srv/guests/image bs=1M count=8 conv=fsync 2> /dev/null
keep_sum /srv/guests/image
check systemctl restart forebay@ssd
echo 3 > /proc/sys/vm/drop_caches
found_again /srv/guests/image
check umount /srv/guests
check forebay detach guests
check mount /dev/disk/by-id/ata-DISK /mnt
found_again /mnt/image
kernel_complains && fail "$(head -2 /tmp/said)"
:
