# recipes/kubernetes.md, as far as it needs no cluster: the image is built from the tarball without a network, a container
# of it serves a file over NBD without any capability, and what was acknowledged outlives its kill.
trouble() { podman logs disk 2>&1 | tail -c 600 | tr '\n' ' '; }
uri='nbd+unix:///disk?socket=/srv/sockets/disk.sock'
mkdir -p /srv/images /srv/sockets
dd if=/dev/urandom of=/srv/images/disk.img bs=1M count=64 2> /dev/null
tar -xf /lab/package/forebay-*.tar.gz || give_up "the tarball cannot be unpacked"
cd forebay-*-linux

block recipes/kubernetes.md 1
# The reason for what the page does next: the runtime's own profile does not let it begin.
podman run --rm --network none --cap-drop all -v /srv/images:/data forebay serve --origin /data/disk.img \
    --nbd unix:/run/forebay.sock > /tmp/said 2>&1 && give_up "a container without a profile of its own serves"
grep -q io_uring /tmp/said || give_up "forebay does not say what it lacks: $(said)"

block recipes/kubernetes.md 2
until_is "the size of the export" 67108864 "nbdinfo --size '$uri' 2> /dev/null"
same "capabilities" 0000000000000000 $(sed -n 's/^CapEff:[[:space:]]*//p' /proc/$(daemon)/status)
check nbdcopy "$uri" /tmp/before
check cmp /tmp/before /srv/images/disk.img
dd if=/dev/urandom of=/tmp/changed bs=1M count=64 2> /dev/null
check nbdcopy --flush /tmp/changed "$uri"
check podman kill --signal KILL disk
until_is "the container" "" "podman ps -aq"
cmp -s /tmp/changed /srv/images/disk.img && give_up "nothing was dirty"

grep -v '^sed\|^truncate' /lab/blocks/recipes/kubernetes.md/2 > /tmp/again
check sh -e /tmp/again
until_is "the size of the export" 67108864 "nbdinfo --size '$uri' 2> /dev/null"
check nbdcopy "$uri" /tmp/after
check cmp /tmp/changed /tmp/after
check podman exec disk /usr/bin/forebay detach disk --control /run/forebay/disk.control
check cmp /tmp/changed /srv/images/disk.img
check podman stop disk
kernel_complains && fail "$(head -2 /tmp/said)"
:
