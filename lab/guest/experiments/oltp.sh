# MariaDB with sysbench's OLTP mix of reads and writes: 260 MiB of tables, a fifth of that in MariaDB's own memory, all
# of it in the cache. Forebay twice: writing back above a share of dirty data, and by age.
start
AT_MIB=4096
dd if=/lab/database.img of=$TARGET bs=1M seek=$AT_MIB oflag=direct 2> /tmp/said || give_up "dd: $(tail -1 /tmp/said)"
dm_table database "0 1048576 linear $TARGET $((AT_MIB * 2048))"
mkdir -p /database && mount -t ext4 /dev/mapper/database /database || give_up "the database's file system does not mount"
mariadbd --no-defaults --user=root --skip-networking --skip-grant-tables --datadir=/database --socket=/run/database \
    --innodb-buffer-pool-size=48M --innodb-flush-method=O_DIRECT --innodb-io-capacity=2000 > /tmp/mariadbd 2>&1 &
DATABASE=$!
wait_for /run/database /tmp/mariadbd
say "value database_started_at $(now)"
sample_dirty 1

# transactions LABEL
transactions() {
    began=$(now)
    say "value ${1}_began_at $began"
    sysbench /usr/share/sysbench/oltp_read_write.lua --mysql-socket=/run/database --mysql-user=root --tables=4 --table-size=250000 \
        --rand-type=uniform --threads=8 --time=$((MILLISECONDS / 1000)) --report-interval=1 --percentile=99 run > /tmp/sysbench 2>&1 ||
        fail "sysbench: $(tail -3 /tmp/sysbench | tr '\n' ' ')"
    sed -n 's/^\[ \([0-9]*\)s \].* tps: \([0-9.]*\).*/\1 \2/p' /tmp/sysbench | awk -v began=$began '{ print began + $1, $2 }' >> /lab/out/transactions
    sed -n 's/.*transactions: .*(\([0-9.]*\) per sec.*/\1/p' /tmp/sysbench | while read rate; do say "value ${1}_transactions_per_second $rate"; done
    sed -n 's/.*99th percentile: *\([0-9.]*\)/\1/p' /tmp/sysbench | while read ms; do say "value ${1}_p99_ms $ms"; done
    snapshot > /lab/out/$1.after
}

transactions first
case $SYSTEM in
forebay-*)
    for change in "writeback timed" "age 3"; do
        forebay set $change --control /run/forebay.control > /tmp/said 2>&1 || give_up "forebay set: $(tail -1 /tmp/said)"
    done
    transactions timed
    ;;
*) transactions second ;;
esac
mariadb --no-defaults -u root -S /run/database -e shutdown && wait $DATABASE || fail "mariadbd ended badly: $(tail -1 /tmp/mariadbd)"
stop_sampling
umount /database && e2fsck -fn /dev/mapper/database > /tmp/said 2>&1 || fail "e2fsck: $(tail -1 /tmp/said)"
