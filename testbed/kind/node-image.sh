#!/bin/sh
# Makes a kind node image in the engine at $DOCKER_HOST, without any container registry. Usage: node-image.sh NAME ROOT BIN KIND
#
# ROOT: a root file system of Debian, which becomes the node's. BIN: the programs of Kubernetes, and kind. KIND: the sources of
# the module sigs.k8s.io/kind, whose files for node images are used as they are.
set -eu
name=$1 root=$2 bin=$3 kind=$4
version=$("$bin/kubeadm" version --output short)
layers=$(dirname "$root")/layers
rm -rf "$layers" && mkdir -p "$layers"

# The images of the control plane: a few files each. $1: name; $2: what it starts; the files are in $layers/$1.
image() {
    tar --directory "$layers/$1" --create . | docker import --change "ENTRYPOINT [$2]" - "$1" >/dev/null
    rm -r "${layers:?}/$1"
}

# Copies programs of ROOT and the libraries they need. $1: into which directory; then the programs' paths in ROOT.
with_libraries() {
    into=$1 && shift
    for program in "$@"; do
        { echo "$program"; chroot "$root" ldd "$program" 2>/dev/null | sed -n 's/^.*[[:space:]]\(\/[^ ]*\) (.*$/\1/p'; } | while read -r file; do
            mkdir -p "$into$(dirname "$file")" && cp --dereference "$root$file" "$into$file"
        done
    done
}

# One program is etcd, the API server, the controller manager and the scheduler, by the name it is called by. It needs libc,
# which comes with `cat`.
cluster=$layers/control-plane
mkdir -p "$cluster/usr/local/bin" "$cluster/etc" "$cluster/tmp"
with_libraries "$cluster" /bin/cat
cp "$bin/control-plane" "$cluster/usr/local/bin/"
for program in etcd kube-apiserver kube-controller-manager kube-scheduler; do ln -s control-plane "$cluster/usr/local/bin/$program"; done
image control-plane ""

proxy=$layers/proxy
mkdir -p "$proxy/usr/local/bin" "$proxy/etc" "$proxy/tmp" "$proxy/run" "$proxy/sbin"
cp "$bin/kube-proxy" "$proxy/usr/local/bin/"
# iptables opens its extensions while it runs, and they have libraries of their own: `statistic`, with which a Service of several
# Pods is written, needs libm.
extensions=$(cd "$root" && find usr/lib/*/xtables -name '*.so' -printf '/%p\n')
# shellcheck disable=SC2086
with_libraries "$proxy" /usr/sbin/nft /usr/sbin/conntrack /usr/sbin/xtables-nft-multi /bin/busybox $extensions
for program in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
    ln -s xtables-nft-multi "$proxy/usr/sbin/$program"
done
loader=$(cd "$proxy" && echo lib*/ld-linux-*)
for extension in $extensions; do
    missing=$(chroot "$proxy" "/$loader" --list "$extension" 2>&1 | grep 'not found\|error') || continue
    echo "the image of kube-proxy lacks what $extension needs: $missing" >&2
    exit 1
done
image proxy ""

# What holds a Pod's namespaces: it only has to stay.
mkdir -p "$layers/pause/bin" && cp "$root/bin/busybox" "$layers/pause/bin/"
image pause '"/bin/busybox","sleep","1000000000"'

mkdir -p "$layers/dns" && cp "$bin/coredns" "$layers/dns/"
image dns '"/coredns"'

# Each under the names that kubeadm and kind's containerd ask for.
images=
for wanted in $("$bin/kubeadm" config images list --kubernetes-version "$version") registry.k8s.io/pause:3.10; do
    case $wanted in
    */kube-proxy:*) made=proxy ;;
    */pause:*) made=pause ;;
    */coredns:*) made=dns ;;
    *) made=control-plane ;;
    esac
    docker tag "$made" "$wanted"
    images="$images $wanted"
done
# shellcheck disable=SC2086
docker save --output "$layers/images.tar" $images

# kind's own files. Go modules do not keep modes.
cp -r "$kind/images/base/files/." "$root/"
chmod -R u+w "$root/etc" "$root/kind" "$root/usr/local/bin" "$root/LICENSES"
find "$root/kind" "$root/etc/containerd" "$root/etc/systemd" "$root/etc/default" "$root/etc/crictl.yaml" "$root/etc/sysctl.d" -type f -exec chmod 644 {} +
chmod 755 "$root"/kind/bin/* "$root"/usr/local/bin/*
# Nothing of an ordinary machine is started.
rm -f "$root"/lib/systemd/system/multi-user.target.wants/* "$root"/etc/systemd/system/*.wants/* \
    "$root"/lib/systemd/system/local-fs.target.wants/* "$root"/lib/systemd/system/sockets.target.wants/*udev* \
    "$root"/lib/systemd/system/sockets.target.wants/*initctl* "$root"/lib/systemd/system/basic.target.wants/* \
    "$root"/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service
echo ReadKMsg=no >>"$root/etc/systemd/journald.conf"
chroot "$root" systemctl --quiet enable kubelet.service containerd.service undo-mount-hacks.service
chroot "$root" systemctl --quiet mask systemd-binfmt.service
# Debian's containerd is where kind's unit does not look.
for program in containerd ctr containerd-shim-runc-v2; do ln -sf "/usr/bin/$program" "$root/usr/local/bin/$program"; done
mkdir -p "$root/opt/cni" "$root/etc/kubernetes/manifests" "$root/kind/manifests" "$root/lib/modules"
ln -sfn /usr/lib/cni "$root/opt/cni/bin"
cp "$bin/crictl" "$root/usr/local/bin/"
cp "$bin/kubeadm" "$bin/kubelet" "$bin/kubectl" "$root/usr/bin/"
echo "$version" >"$root/kind/version"
# Without CAP_SYS_RESOURCE, which not every machine's root has, an OOM score cannot be lowered.
sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$root/etc/containerd/config.toml"
chroot "$root" ctr oci spec | chroot "$root" jq 'del(.process.rlimits) | .hooks.createContainer += [{path: "/kind/bin/mount-product-files.sh"}]' \
    >"$root/etc/containerd/cri-base.json"

tar --directory "$root" --create . | docker import - "$name-empty" >/dev/null
# The images go into the node's own containerd, as `kind build node-image` does it.
docker rm --force node-image >/dev/null 2>&1 || true
docker run --detach --privileged --name node-image --network none --volume "$layers:/layers:ro" "$name-empty" sleep 3600 >/dev/null
docker exec --detach node-image containerd
docker exec node-image sh -euc '
    tries=0; until ctr version >/dev/null 2>&1; do tries=$((tries + 1)); [ $tries -lt 100 ]; sleep 0.1; done
    ctr --namespace k8s.io images import --no-unpack /layers/images.tar >/dev/null
    pkill containerd; while pgrep -x containerd >/dev/null; do sleep 0.1; done; rm -rf /run/containerd'
docker commit --change 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]' --change 'CMD []' --change 'ENV container docker' \
    node-image "$name" >/dev/null
docker rm --force node-image >/dev/null
