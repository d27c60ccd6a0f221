# Instructions of the whole guest for each 4 KiB over one NBD server, the server's own among them: through the kernel's
# client alone, through Forebay over that, and through Forebay with a client of its own. The server's disk is memory.
disks_in_memory ram0 ram1
nbdkit -f -t 16 -U /run/server.sock file file=/dev/ram0 > /tmp/nbdkit 2>&1 &
wait_for /run/server.sock /tmp/nbdkit

# each WAY: places that nobody asked for before, each once; then places that are cached, if anything caches.
each() {
    count $1-miss-4k-depth-1 4 1 256 64 8000 4000
    count $1-miss-4k-depth-32 4 32 320 64 8000 4000
    count $1-hit-4k-depth-1 4 1 256 16 8000 4000
}
# serve ORIGIN
serve() {
    wipe ram1
    forebay serve --origin "$1" --cache /dev/ram1 --create --mode writeback --name volume --ublk --state-dir /run/state \
        --control /run/forebay.control --log-level warn > /tmp/forebay 2>&1 &
    wait_for /dev/ublkb0 /tmp/forebay
    TARGET=/dev/ublkb0
    # Until then a kernel that has just booted, or a device that is new, counts more.
    sleep 20
}

nbd_connect /run/server.sock "" 1 /tmp/nbdkit
sleep 20
each kernel
serve /dev/nbd0
each forebay-over-kernel
forebay stop --control /run/forebay.control > /tmp/said 2>&1 || give_up "stop: $(said)"
nbd-client -d /dev/nbd0 > /tmp/said 2>&1 || give_up "nbd-client -d: $(said)"
serve 'nbd+unix:///?socket=/run/server.sock'
each forebay
