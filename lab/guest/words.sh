# What each of the lab's guests says to the host, and checks that end it.
say() { echo "@lab $*"; }
fail() { say "failed $*"; }
give_up() { fail "$@"; exit 1; }
now() { cut -d' ' -f1 /proc/uptime; }

# What a command said, in one line; an experiment can add what else there is to know of a failure.
said() { tr '\n' ' ' < /tmp/said | tail -c 600; }
trouble() { :; }
# check COMMAND...: it must succeed
check() { "$@" > /tmp/said 2>&1 || give_up "$*: $(said) $(trouble)"; }
# refused WORDS COMMAND...: it must fail and say these words
refused() {
    words=$1
    shift
    "$@" > /tmp/said 2>&1 && give_up "$*: it was not refused"
    grep -q -e "$words" /tmp/said || give_up "$*: $(said)"
}
# same WHAT WANTED FOUND. until_is WHAT WANTED COMMAND: within a minute.
same() { [ "$2" = "$3" ] || give_up "$1: $3 and not $2"; }
until_is() {
    tries=0
    until [ "$(eval "$3")" = "$2" ]; do
        tries=$((tries + 1))
        [ $tries -gt 600 ] && give_up "$1 stays $(eval "$3") $(trouble)"
        sleep 0.1
    done
}

# state UNIT: systemd's, in a guest that has it
state() { systemctl show -P ActiveState $1; }

# kernel_complains: what it says then is in /tmp/said. QEMU's machine has a floppy drive, which holds nothing.
kernel_complains() { dmesg | grep -v 'dev fd0' | grep -iE "I/O error|EXT4-fs error|hung task|BUG:" > /tmp/said; }

# wait_for PATH [LOG]
wait_for() {
    tries=0
    until [ -e "$1" ]; do
        tries=$((tries + 1))
        [ $tries -gt 300 ] && give_up "$1 did not appear; $(tail -c 300 ${2:-/dev/null} | tr '\n' ' ')"
        sleep 0.05
    done
}
