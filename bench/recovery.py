"""SIGKILL with a warm, dirty cache: what the next start still has."""

from lab import MIB, Forebay, Scratch, fio, until

READ = ["--rw=read", "--bs=128k", "--iodepth=4", "--size=256M"]
WRITE = ["--rw=randwrite", "--bs=4k", "--iodepth=32", "--offset=256M", "--size=64M"]
SERVE = ["--origin", "disk.img", "--cache", "cache.img", "--create", "--mode", "writeback",
         "--age", "3600", "--dirty-low", "50"]


def read_pass(server):
    """The share of blocks that hit when everything is read once."""
    before = server.status()["traffic"]
    fio(server, *READ)
    after = server.status()["traffic"]
    hit, missed = (after[key] - before[key] for key in ("read_blocks_hit", "read_blocks_missed"))
    return hit / (hit + missed)


def measure():
    with Scratch(None, 1024 * MIB) as scratch:
        scratch.file("disk.img", 512 * MIB)
        scratch.file("cache.img", 512 * MIB)
        server = Forebay(scratch, *SERVE)
        fio(server, *READ)
        fio(server, *WRITE)

        def promoted():
            return server.status()["cache"]["cached_bytes"] >= 300 * MIB

        until("promotion to end", promoted)
        hits_before = read_pass(server)
        dirty_before = server.status()["cache"]["dirty_bytes"]
        server.kill()
        server = Forebay(scratch, *SERVE)
        cache = server.status()["cache"]
        hits_after = read_pass(server)
        server.stop()
    return {
        "title": "Recovery after SIGKILL in write-back",
        "commands": ["forebay serve " + " ".join(SERVE), "fio --ioengine=nbd " + " ".join(READ),
                     "fio --ioengine=nbd " + " ".join(WRITE), "kill -9, the same again"],
        "detail": [f"hits of a read pass: {hits_before:.4f} before, {hits_after:.4f} after",
                   f"dirty bytes: {dirty_before} before, {cache['dirty_bytes']} after",
                   f"read to recover: {cache['recovery']['bytes_read'] / MIB:.1f} MiB"],
        "rows": [("hits after SIGKILL, ratio", hits_after / hits_before, "at least", 0.999),
                 ("dirty bytes after SIGKILL, ratio", cache["dirty_bytes"] / dirty_before, "equal to", 1.0)],
    }
