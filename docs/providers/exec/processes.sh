#!/bin/sh
# A provider whose machines are real nodes: each is a kubelet with its own containerd, in namespaces of its own, on the
# host where nodepool-operator runs. For trying things out on one Linux host, as root; nothing is left when a machine ends.
#
# $NODES holds `kubeconfig`, in which NAME stands for the name of a machine, and a directory per machine: it is there for as
# long as the machine runs, and `wanted` in it for as long as it should. Archives in $NODES/images are imported. containerd,
# ctr, runc and kubelet come from $PATH, the network plugins from $CNI.
set -eu

# Outside: waits for the machine and takes away the only thing that outlives its namespaces.
outside() {
    unshare --pid --mount --uts --ipc --fork --kill-child=KILL "$0" inside "$1" </dev/null || true
    rmdir /sys/fs/cgroup/*/k8s.io/* /sys/fs/cgroup/*/k8s.io /sys/fs/cgroup/k8s.io/* /sys/fs/cgroup/k8s.io 2>/dev/null || true
    rm -rf "${NODES:?}/$1"
}

# Inside: the first process of the machine. When it ends, so does every other one.
inside() {
    name=$1 number=${1##*-}
    mount --make-rprivate / && mount -t proc proc /proc && hostname "$name"
    # All state is in memory and goes with the mount namespace.
    mount -t tmpfs tmpfs /var && mount -t tmpfs tmpfs /run && mkdir -p /run/netns /var/cni /var/log /var/tmp
    sed "s/NAME/$name/" "$NODES/kubeconfig" >/var/kubeconfig
    cat >/var/cni/ptp.conflist <<EOF
{"cniVersion": "1.0.0", "name": "nodes", "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "dataDir": "/var/ipam",
 "ranges": [[{"subnet": "10.$((100 + number / 256)).$((number % 256)).0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
EOF
    cat >/var/containerd.toml <<EOF
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "${PAUSE:-registry.k8s.io/pause:3.10}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "${CNI:-/usr/lib/cni}"
    conf_dir = "/var/cni"
EOF
    cat >/var/kubelet.yaml <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
port: $((18000 + number))
healthzPort: 0
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
evictionHard: {memory.available: 1Mi, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}
imageGCHighThresholdPercent: 100
nodeLeaseDurationSeconds: 8
nodeStatusUpdateFrequency: 2s
EOF
    containerd --config /var/containerd.toml &
    until ctr version >/dev/null 2>&1; do sleep 0.1; done
    for archive in "$NODES"/images/*.tar; do ctr --namespace k8s.io images import "$archive"; done
    kubelet --config=/var/kubelet.yaml --kubeconfig=/var/kubeconfig --hostname-override="$name" \
        --provider-id="process://$name" --cert-dir=/var/pki &
    # The machine runs for as long as it is wanted, also when nothing is there any more to stop it.
    while [ -e "$NODES/$name/wanted" ]; do sleep 0.2; done
}

case ${1:-} in outside | inside) "$@"; exit ;; esac

request=$(cat)
field() { printf '%s\n' "$request" | sed -n "s/^  \"$1\": \"\(.*\)\",*\$/\1/p"; }
pool=$(field namespace).$(field pool) machine=$(field machine)
case $(field operation) in
create)
    if mkdir "$NODES/$machine" 2>/dev/null; then
        echo "$(field cluster)" >"$NODES/$machine/cluster"
        echo "$pool" >"$NODES/$machine/pool"
        touch "$NODES/$machine/wanted"
        # On its own: it must not hold the output of this process.
        setsid "$0" outside "$machine" >"$NODES/$machine/log" 2>&1 </dev/null &
    fi
    echo '{"readyInSeconds": 3}' ;;
list)
    for of in "$NODES"/*/pool; do
        [ "$(cat "$of" 2>/dev/null)" = "$pool" ] || continue
        name=$(basename "$(dirname "$of")") state=Running
        [ -e "$NODES/$name/wanted" ] || state=Deleting
        list="${list:-}${list:+,} {\"name\": \"$name\", \"state\": \"$state\", \"providerID\": \"process://$name\", \
            \"cluster\": \"$(cat "$NODES/$name/cluster" 2>/dev/null || true)\"}"
    done
    echo "{\"machines\": [${list:-}]}" ;;
delete)
    rm -f "$NODES/$machine/wanted"
    if [ -e "$NODES/$machine" ]; then echo '{"state": "Deleting"}'; else echo '{"state": "Gone"}'; fi ;;
esac
