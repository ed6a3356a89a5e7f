package main

import (
	"context"
	"errors"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"
)

// node mounts volumes for pods.
type node struct {
	csi.UnimplementedNodeServer
	store *store
	name  string
}

func newNode(store *store, name string) *node { return &node{store: store, name: name} }

// NodeStageVolume mounts a volume once on this node, and grows its file system to the size of the volume.
func (n *node) NodeStageVolume(
	_ context.Context, request *csi.NodeStageVolumeRequest,
) (*csi.NodeStageVolumeResponse, error) {
	target := request.GetStagingTargetPath()
	release, err := n.begin(request.GetVolumeId(), target, request.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	defer release()
	if _, err := n.store.size(request.GetVolumeId()); err != nil {
		return nil, err
	}
	// nouuid: a volume and what was restored from its snapshot have the same file system's identity.
	options := append([]string{"loop", "nouuid"}, request.GetVolumeCapability().GetMount().GetMountFlags()...)
	if err := n.mount(n.store.volume(request.GetVolumeId()), target, kind, options); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, command("xfs_growfs", "-d", target)
}

func (n *node) NodeUnstageVolume(
	_ context.Context, request *csi.NodeUnstageVolumeRequest,
) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, n.unmount(request.GetVolumeId(), request.GetStagingTargetPath())
}

func (n *node) NodePublishVolume(
	_ context.Context, request *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	staged, target := request.GetStagingTargetPath(), request.GetTargetPath()
	release, err := n.begin(request.GetVolumeId(), target, request.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	defer release()
	if _, err := n.store.size(request.GetVolumeId()); err != nil {
		return nil, err
	}
	if mounted, err := n.mounted(staged); err != nil {
		return nil, err
	} else if staged == "" || !mounted {
		return nil, status.Errorf(codes.FailedPrecondition, "%s: got a volume that is not staged, expected one", staged)
	}
	options := []string{"bind"}
	if request.GetReadonly() {
		options = append(options, "ro")
	}
	return &csi.NodePublishVolumeResponse{}, n.mount(staged, target, "", options)
}

func (n *node) NodeUnpublishVolume(
	_ context.Context, request *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, n.unmount(request.GetVolumeId(), request.GetTargetPath())
}

// NodeExpandVolume enlarges the file, the loop device and the file system, while pods use it.
func (n *node) NodeExpandVolume(
	_ context.Context, request *csi.NodeExpandVolumeRequest,
) (*csi.NodeExpandVolumeResponse, error) {
	id, path := request.GetVolumeId(), request.GetVolumePath()
	release, err := n.store.hold(id)
	if err != nil {
		return nil, err
	}
	defer release()
	if path == "" {
		return nil, status.Error(codes.InvalidArgument, "got no volume path, expected one")
	}
	old, err := n.store.size(id)
	if err != nil {
		return nil, err
	}
	size, err := sized(request.GetCapacityRange(), smallest)
	if err != nil {
		return nil, err
	}
	size = max(size, old)
	device, err := n.store.device(id)
	if err != nil {
		return nil, err
	}
	// Before anything has grown: what is not mounted stays as large as it is reported.
	if mounted, err := n.mounted(path); err != nil {
		return nil, err
	} else if !mounted || device == "" {
		return nil, status.Errorf(codes.NotFound, "%s: got no mounted volume, expected one", path)
	}
	file, err := os.OpenFile(n.store.volume(id), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := reserve(file, size); err != nil {
		return nil, err
	}
	err = errors.Join(command("losetup", "--set-capacity", device), command("xfs_growfs", "-d", path))
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, err
}

func (n *node) NodeGetVolumeStats(
	_ context.Context, request *csi.NodeGetVolumeStatsRequest,
) (*csi.NodeGetVolumeStatsResponse, error) {
	id, path := request.GetVolumeId(), request.GetVolumePath()
	if id == "" || path == "" {
		return nil, status.Error(codes.InvalidArgument, "got no id or no volume path, expected both")
	}
	if _, err := n.store.size(id); err != nil {
		return nil, err
	}
	if mounted, err := n.mounted(path); err != nil {
		return nil, err
	} else if !mounted {
		return nil, status.Errorf(codes.NotFound, "%s: got no mounted volume, expected one", path)
	}
	var about unix.Statfs_t
	if err := unix.Statfs(path, &about); err != nil {
		return nil, err
	}
	usage := func(unit csi.VolumeUsage_Unit, size int64, total, free, available uint64) *csi.VolumeUsage {
		return &csi.VolumeUsage{
			Unit: unit, Total: int64(total) * size, Used: int64(total-free) * size, Available: int64(available) * size,
		}
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		usage(csi.VolumeUsage_BYTES, about.Bsize, about.Blocks, about.Bfree, about.Bavail),
		usage(csi.VolumeUsage_INODES, 1, about.Files, about.Ffree, about.Ffree),
	}}, nil
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.name, AccessibleTopology: topology(n.name)}, nil
}

func (n *node) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, call := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: call}},
		})
	}
	return answer, nil
}

// begin refuses incomplete requests, and holds the volume.
func (n *node) begin(id, target string, capability *csi.VolumeCapability) (release func(), err error) {
	if id == "" || target == "" {
		return nil, status.Error(codes.InvalidArgument, "got no id or no target path, expected both")
	}
	if err := able(capability); err != nil {
		return nil, err
	}
	return n.store.hold(id)
}

// mounted says whether a path is a mount point; a path that is not there is none.
func (n *node) mounted(path string) (bool, error) {
	mounted, err := n.store.mounter.IsMountPoint(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return mounted, err
}

// mount mounts once.
func (n *node) mount(source, target, fs string, options []string) error {
	if mounted, err := n.mounted(target); err != nil || mounted {
		return err
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	return n.store.mounter.Mount(source, target, fs, options)
}

// unmount removes a mount, and the folder under it, if they are there.
func (n *node) unmount(id, target string) error {
	if id == "" || target == "" {
		return status.Error(codes.InvalidArgument, "got no id or no target path, expected both")
	}
	release, err := n.store.hold(id)
	if err != nil {
		return err
	}
	defer release()
	return mount.CleanupMountPoint(target, n.store.mounter, true)
}
