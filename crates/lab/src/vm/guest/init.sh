#!/bin/busybox sh
# The first process of the guest: mounts the host's files under an overlay in RAM, names the network cards, runs the
# script with its output on the second and third serial line, and reports how it ended.
/bin/busybox --install -s /bin
PATH=/bin

# The host receives each byte written to this port at once: `u` is up, `f` failed, `s` the script's end with the next byte
# as its status. A serial line sometimes stalls because an interrupt is lost.
tell() { printf "$1" | dd of=/dev/port bs=1 seek=233 count=1 2>/dev/null; }
end() {
    # Any byte written to this port ends the emulator at once.
    printf '\0' | dd of=/dev/port bs=1 seek=244 count=1 2>/dev/null
    poweroff -f
}
give_up() {
    echo "linerate-vm: $*" >/dev/console
    sleep 1 # for these words to leave
    tell f
    end
}

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
echo 3 >/proc/sys/kernel/printk
side=
[ ! -f /side ] || read -r side </side
hostname "linerate-vm${side:+-$side}"
for line in ttyS0 ttyS1 ttyS2; do
    stty -F /dev/$line raw -echo 115200 || give_up "no serial line $line"
done
while read -r module || [ -n "$module" ]; do
    insmod "/modules/$module.ko" || give_up "cannot load the module $module"
done </modules/at-start

nine="-t 9p -o trans=virtio,version=9p2000.L,msize=512000"
mount $nine,cache=loose,ro host /host || give_up "cannot mount the host's files"
mount -t tmpfs -o size=90% tmpfs /new
mkdir /new/upper /new/work /new/root
root=/new/root
packages=
[ ! -f /packages ] || read -r packages </packages || [ -n "$packages" ]
mount -t overlay -o "lowerdir=${packages:+/host$packages:}/host,upperdir=/new/upper,workdir=/new/work" overlay $root ||
    give_up "cannot lay a writable layer over the host's files"
mkdir -p $root/proc $root/sys $root/dev $root/run $root/share
mount -t proc proc $root/proc
mount -t sysfs sysfs $root/sys
mount --bind /dev $root/dev
mkdir -p $root/dev/pts $root/dev/shm $root/dev/net
[ -c $root/dev/net/tun ] || mknod $root/dev/net/tun c 10 200
mount -t devpts devpts $root/dev/pts
mount -t tmpfs tmpfs $root/dev/shm
mount -t tmpfs tmpfs $root/run
mount -t bpf bpf $root/sys/fs/bpf
mount -t tracefs tracefs $root/sys/kernel/tracing
mount -t debugfs debugfs $root/sys/kernel/debug
mount -t cgroup2 cgroup2 $root/sys/fs/cgroup
mount $nine share $root/share 2>/dev/null

ip link set lo up
for path in /sys/class/net/*; do
    read -r mac <"$path/address"
    case $mac in 52:54:00:00:*)
        pair=${mac#52:54:00:00:}
        ip link set "${path##*/}" name "pair$((0x${pair%:*}))${pair#*:0}"
        ;;
    52:54:00:01:*)
        wire=${mac#52:54:00:01:}
        wire=$((0x${wire%:*}))
        ip link set "${path##*/}" name wire$wire
        case $side in a) here=1 ;; *) here=2 ;; esac
        ip address add 198.18.$wire.$here/24 dev wire$wire
        ip link set wire$wire up
        ;;
    esac
done

tell u
if [ -n "$side" ]; then
    mkdir $root/run/vm
    cp /sbin/cable $root/run/vm/cable
    # The first machine's script starts once the second one's listens on a TCP port, or has had ten seconds to.
    case $side in
    a)
        tries=0
        until nc -w 1 198.18.1.2 9 </dev/null >/dev/null 2>&1 || [ $tries -ge 200 ]; do
            sleep 0.1
            tries=$((tries + 1))
        done
        ;;
    *)
        {
            tries=0
            until grep -q ': [0-9A-F:]* [0-9A-F:]* 0A ' /proc/net/tcp /proc/net/tcp6 || [ $tries -ge 50 ]; do
                sleep 0.2
                tries=$((tries + 1))
            done
            nc -l -p 9 </dev/null >/dev/null
        } 2>/dev/null &
        ;;
    esac
    # A line on the console requests the end: the script's current child is terminated, or the script itself without one.
    {
        read -r _ </dev/ttyS0
        read -r script <$root/run/script.pid
        read -r children <"/proc/$script/task/$script/children"
        # Several processes are several words.
        # shellcheck disable=SC2086
        kill -TERM ${children:-$script}
    } &
fi
cp /script $root/run/script
read -r folder </folder || [ -n "$folder" ]
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin${side:+:/run/vm} HOME=/root TERM=dumb LC_ALL=C
/bin/busybox chroot $root /bin/sh -c 'cd "$1" 2>/dev/null || cd /; echo $$ >/run/script.pid; exec /bin/sh /run/script' sh "$folder" \
    </dev/null >/dev/ttyS1 2>/dev/ttyS2
status=$?
PATH=/bin
tell s
tell "\\$(printf %03o "$status")"
end
