# For a guest that is a whole Debian, as it is after its installation, and follows the manual.
. /lab/settings.sh
. /lab/words.sh
export DEBIAN_FRONTEND=noninteractive
exec < /dev/null
cd /root
mkdir -p /lab/out
say "up $(now)"
journalctl -f -o short-monotonic -n 1000 > /lab/out/journal-$LIFE 2>&1 &

# The end of a life, whatever happened; a machine that is shut down in order has its own.
end_life() { poweroff -ff; }
trap 'say "done $(now)"; end_life' EXIT

# Of the service that most pages start; nothing where there is none.
trouble() { journalctl -q -o cat -n 12 -u forebay@ssd | tr '\n' ' ' | tail -c 900; }

# block PAGE NUMBER: the page's own text, typed in one go; with a FILE, text that belongs into that file. What is in
# $ANSWER is typed at a terminal, for a command that asks.
block() {
    file=/lab/blocks/$1/$2
    # Where the host sees it as it comes.
    typed=/lab/out/typed-$LIFE
    if [ -n "$3" ]; then
        cat $file >> $3
    elif [ -n "$ANSWER" ]; then
        echo "$ANSWER" | script -qec "timeout --foreground 300 bash -ev $file" /dev/null > $typed 2>&1 || block_failed "$@"
        grep -q "$ANSWER" $typed || block_failed "$@"
    else
        timeout 300 bash -ev $file > $typed 2>&1 || block_failed "$@"
    fi
    say "value $1_$2 1"
}
block_failed() {
    cp $typed /tmp/said
    give_up "block $2 of $1: $(said) $(trouble)"
}
# is_served VOLUME: with a daemon that says so
is_served() { [ -b /dev/forebay/$1 ] && forebay status | grep -q "$1" || give_up "$1 is not served: $(forebay status 2>&1 | tr '\n' ' ')"; }
daemon() { pidof forebay; }
dirty_bytes() { forebay status --json | sed -n 's/.*"volumes":.*"dirty_bytes": *\([0-9]*\).*/\1/p'; }
install_package() { check apt-get install -qy /lab/package/forebay_*.deb; }

# The SSD has two partitions before the one for the cache, as in the pages.
make_partitions() {
    printf 'label: gpt\nsize=128MiB\nsize=16MiB\nsize=+\n' | sfdisk -q /dev/disk/by-id/nvme-SSD > /tmp/said 2>&1 || give_up "sfdisk: $(said)"
    check udevadm settle
    [ -b /dev/nvme0n1p3 ] || give_up "the SSD has no third partition: $(ls /dev | tr '\n' ' ')"
}
# put_files DEVICE: a file system with a file in it, whose sum is kept for later lives
put_files() {
    check mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 $1
    check mount $1 /mnt
    dd if=/dev/urandom of=/mnt/old bs=1M count=8 conv=fsync 2> /dev/null
    keep_sum /mnt/old
    check umount /mnt
}
keep_sum() { md5sum < $1 > /lab/sum-$(basename $1); }
found_again() { same "$1" "$(cat /lab/sum-$(basename $1))" "$(md5sum < $1)"; }
check udevadm settle
