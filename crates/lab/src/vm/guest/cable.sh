#!/bin/sh
# cable N off, cable N on: pulls or plugs in the Nth cable between two machines, at both ends.
case $1:$2 in
[1-8]:off) order=$((128 + 2 * $1)) ;;
[1-8]:on) order=$((129 + 2 * $1)) ;;
*)
    echo "usage: cable N on|off" >&2
    exit 2
    ;;
esac
# One byte to the port at which the host reads the first process's marks.
printf "\\$(printf %03o "$order")" | dd of=/dev/port bs=1 seek=233 count=1 2>/dev/null
