#!/bin/bash
# Shows what a cache does for a slow disk, and what a crash does to the cache. Needs fio and python3,
# no root; takes about two minutes. FOREBAY is the program to show, --keep keeps the files.
exec python3 "$(dirname "$0")/demo.py" "$@"
