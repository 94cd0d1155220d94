#!/bin/sh
# A container engine in namespaces of its own: Docker's daemon, seen by nobody but its socket. When the first process ends, so do
# all containers, networks and mounts. Usage: engine.sh ROOT DATA RUN
#
# ROOT: Debian's packages, unpacked. DATA: images, kept between runs. RUN: everything else, and the socket.
set -eu

# Gives the group a weight in the hierarchy $1 of cgroups: version 1 has one for processors, version 2 one for everything. Where the
# machine has no such hierarchy, or its root no such weight, nothing changes.
share() {
    [ -d "/sys/fs/cgroup/$1" ] && [ -w "/sys/fs/cgroup/$1/cgroup.procs" ] || return 0
    mkdir -p "/sys/fs/cgroup/$1/$group"
    [ ! -f "/sys/fs/cgroup/$1/$group/$2" ] || echo "$3" >"/sys/fs/cgroup/$1/$group/$2"
}

# Outside. What outlives the namespaces are empty cgroups, and RUN while a program in them still writes there: a process that
# nobody waits for takes them away.
outside() {
    group=tandem-kind-$$
    # The kernel shares out the processors by the weights of groups, and this group is by default worth one program: beside twenty
    # others, the cluster's etcd waited fifty times as long as it ran. It is worth ten: five times.
    share cpu cpu.shares 10240 && share . cpu.weight 1000
    # shellcheck disable=SC2016
    setsid sh -c '
        while [ -d "/proc/$1" ]; do sleep 0.2; done
        tries=0
        while [ $tries -lt 50 ] && [ -n "$(ls -d /sys/fs/cgroup/"$2" /sys/fs/cgroup/*/"$2" 2>/dev/null)" ]; do
            for top in /sys/fs/cgroup/"$2" /sys/fs/cgroup/*/"$2"; do
                [ ! -d "$top" ] || find "$top" -depth -type d -exec rmdir {} + 2>/dev/null
            done
            tries=$((tries + 1)); sleep 0.2
        done
        rm -rf "$3"' sh $$ "$group" "$3" </dev/null >/dev/null 2>&1 &
    exec unshare --pid --mount --net --uts --ipc --fork --kill-child=KILL sh "$0" inside "$group" "$@"
}

inside() {
    group=$1 root=$2 data=$3 run=$4
    mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs tmpfs /run && ip link set lo up
    mkdir -p "$run/bin"
    for program in iptables iptables-save iptables-restore ip6tables; do
        ln -s "$root/usr/sbin/xtables-nft-multi" "$run/bin/$program"
    done
    # kind asks for all capabilities by name, and not every machine's root has CAP_SYS_RESOURCE to give.
    cat >"$run/bin/runtime" <<EOF
#!/bin/sh
file= before=
for argument in "\$@"; do
    case \$before in --bundle) file=\$argument/config.json ;; --process) file=\$argument ;; esac
    before=\$argument
done
[ -z "\$file" ] || sed -i 's/"CAP_SYS_RESOURCE",//g; s/,"CAP_SYS_RESOURCE"//g' "\$file"
exec "$root/usr/sbin/runc" "\$@"
EOF
    chmod 755 "$run/bin/runtime"
    export PATH="$run/bin:$root/usr/sbin:$root/usr/bin:$PATH"
    libraries=$(dirname "$(find "$root/" -name 'libdevmapper.so.*' | head -1)")
    export LD_LIBRARY_PATH="$root/usr/lib/${libraries##*/}:$libraries" XTABLES_LIBDIR="$root/usr/lib/${libraries##*/}/xtables"
    dockerd --data-root "$data" --exec-root "$run/exec" --pidfile "$run/dockerd.pid" --host "unix://$run/docker.sock" \
        --cgroup-parent "/$group" --default-cgroupns-mode private --add-runtime "without-limits=$run/bin/runtime" \
        --default-runtime without-limits &
    wait $!
}

case $1 in inside) "$@" ;; *) outside "$@" ;; esac
