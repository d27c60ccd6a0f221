# recipes/database.md, from PostgreSQL on a disk of its own: it has its old rows on the volume, answers, goes on after a
# kill of the daemon, and its rows are on the disk alone after the way back.
sql() { runuser -u postgres -- psql -qtA -c "$1" 2> /tmp/said || give_up "psql: $(said)"; }
rows() { sql 'select count(*), sum(n) from t'; }
make_partitions
check mkfs.ext4 -q /dev/sdb
check mount /dev/sdb /mnt
cp -a /var/lib/postgresql/. /mnt
check umount /mnt
check mount /dev/sdb /var/lib/postgresql
check systemctl start postgresql
sql 'create table t (n bigint)'
sql 'insert into t select generate_series(1, 1000)'
install_package

block recipes/database.md 1
is_served pg
same "the database's device" $(readlink -f /dev/forebay/pg) $(findmnt -no SOURCE /var/lib/postgresql)
same "the old rows" "1000|500500" "$(rows)"
sql 'insert into t select generate_series(1001, 2000)'
[ "$(dirty_bytes)" -gt 0 ] || give_up "nothing is dirty"

# A transaction waits for the next daemon, which is started as the page says.
before=$(daemon)
kill -9 $before
(sql 'insert into t select generate_series(2001, 3000)'; echo committed > /tmp/committed) &
grep '^forebay serve' /lab/blocks/recipes/database.md/1 > /tmp/again
bash /tmp/again > /tmp/serve 2>&1
until_is "the transaction" committed "cat /tmp/committed 2> /dev/null"
[ "$(daemon)" != "$before" ] || give_up "there is no other daemon"
same "the rows after a kill" "3000|4501500" "$(rows)"

check systemctl stop 'postgresql*'
check umount /var/lib/postgresql
check forebay detach pg
check forebay stop
check e2fsck -fn /dev/sdb
check mount /dev/sdb /var/lib/postgresql
check systemctl start postgresql
same "the rows on the disk alone" "3000|4501500" "$(rows)"
check systemctl stop 'postgresql*'
kernel_complains && fail "$(head -2 /tmp/said)"
:
