# Process 1 of a node, in namespaces of its own: all of them, with every mount, link and process, end with it.
# $1 is the node's folder on this machine, $2 the tree of its root, $3 the folder of the built parts, $4 its PATH.
set -eu
folder=$1 tree=$2 parts=$3 path=$4
root=$folder/root
mkdir -p "$root" "$folder/upper" "$folder/work"
mount -t overlay node -o "lowerdir=$tree,upperdir=$folder/upper,workdir=$folder/work" "$root"
for own in containerd kubelet etcd; do
  mkdir -p "$folder/$own" "$root/var/lib/$own"
  mount --bind "$folder/$own" "$root/var/lib/$own"
done
mount -t tmpfs -o mode=755 node "$root/run"
mount -t tmpfs -o mode=1777 node "$root/tmp"
mount -t proc proc "$root/proc"
for shared in /dev /sys; do mount --rbind "$shared" "$root$shared"; done
mkdir -p "$root/mnt/parts" "$root/etc/cni/net.d"
mount --bind "$parts" "$root/mnt/parts"
cd "$root"
pivot_root . .
umount -l .
mount --make-rshared /
export PATH="$path" HOME=/root
# As systemd would, if there were one: kubeadm finds no service manager, and only waits for a kubelet that runs.
( while :; do containerd >> /var/log/containerd.log 2>&1 || sleep 1; done ) &
(
  while :; do
    KUBELET_KUBEADM_ARGS=
    if [ -e /var/lib/kubelet/kubeadm-flags.env ]; then . /var/lib/kubelet/kubeadm-flags.env; fi
    if [ -e /var/lib/kubelet/config.yaml ]; then
      # shellcheck disable=SC2086
      kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \
        --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS >> /var/log/kubelet.log 2>&1 || true
    fi
    sleep 1
  done
) &
touch /run/node-is-up
while :; do wait || true; done
