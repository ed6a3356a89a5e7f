package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// controller creates and removes volumes and snapshots of its own node: upstream's provisioner and snapshotter run
// beside it, each for one node (--node-deployment).
type controller struct {
	csi.UnimplementedControllerServer
	store *store
	node  string
}

// topology is what the volumes of a node are reached from.
func topology(node string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{nodeKey: node}}
}

// able refuses what no volume here can: block devices, and writers on several nodes.
func able(capabilities ...*csi.VolumeCapability) error {
	if len(capabilities) == 0 || capabilities[0] == nil {
		return status.Error(codes.InvalidArgument, "got no volume capability, expected one")
	}
	for _, capability := range capabilities {
		mode := capability.GetAccessMode().GetMode()
		one := mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER ||
			mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
		if capability.GetBlock() != nil || !one {
			return status.Errorf(codes.InvalidArgument, "got %v, expected a file system for one node", capability)
		}
		if name := capability.GetMount().GetFsType(); name != "" && name != kind {
			return status.Errorf(codes.InvalidArgument, "got the file system %s, expected %s", name, kind)
		}
	}
	return nil
}

// sized is the size to create, of `least` bytes or more; an error if the limits cannot be kept.
func sized(limits *csi.CapacityRange, least int64) (int64, error) {
	size := max(limits.GetRequiredBytes(), least)
	if limit := limits.GetLimitBytes(); limit > 0 && size > limit {
		return 0, status.Errorf(codes.OutOfRange, "got a limit of %d bytes, expected %d or more", limit, size)
	}
	return size, nil
}

func (c *controller) CreateVolume(
	_ context.Context, request *csi.CreateVolumeRequest,
) (*csi.CreateVolumeResponse, error) {
	id := request.GetName()
	if err := able(request.GetVolumeCapabilities()...); err != nil {
		return nil, err
	}
	size, err := sized(request.GetCapacityRange(), smallest)
	if err != nil {
		return nil, err
	}
	release, err := c.store.hold(id)
	if err != nil {
		return nil, err
	}
	defer release()
	source := request.GetVolumeContentSource()
	from := ""
	if source.GetVolume() != nil {
		return nil, status.Error(codes.InvalidArgument, "got a volume to copy, expected a snapshot of it")
	}
	if source != nil {
		path, about, err := c.store.snapshot(source.GetSnapshot().GetSnapshotId())
		if err != nil {
			return nil, err
		}
		if path == "" {
			return nil, none(source.GetSnapshot().GetSnapshotId())
		}
		if size, err = sized(request.GetCapacityRange(), max(smallest, about.Size())); err != nil {
			return nil, err
		}
		from = path
	}
	if size, err = c.create(id, from, size, request.GetCapacityRange()); err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: id, CapacityBytes: size, ContentSource: source,
		AccessibleTopology: []*csi.Topology{topology(c.node)},
	}}, nil
}

// create makes the volume, unless it is there with a size within the limits, and returns its size.
func (c *controller) create(id, from string, size int64, limits *csi.CapacityRange) (int64, error) {
	existing, err := c.store.size(id)
	if err == nil {
		if existing < limits.GetRequiredBytes() || limits.GetLimitBytes() > 0 && existing > limits.GetLimitBytes() {
			return 0, status.Errorf(codes.AlreadyExists, "volume %s: got %d bytes, expected %v", id, existing, limits)
		}
		return existing, nil
	} else if status.Code(err) != codes.NotFound {
		return 0, err
	}
	draft, err := c.store.draft(id, from, size)
	if err == nil {
		err = rename(draft, c.store.volume(id))
	}
	if err != nil {
		_ = os.Remove(draft)
		return 0, err
	}
	return size, nil
}

func (c *controller) DeleteVolume(
	_ context.Context, request *csi.DeleteVolumeRequest,
) (*csi.DeleteVolumeResponse, error) {
	id := request.GetVolumeId()
	release, err := c.store.hold(id)
	if status.Code(err) == codes.NotFound {
		return &csi.DeleteVolumeResponse{}, nil // no volume has such an id
	} else if err != nil {
		return nil, err
	}
	defer release()
	if device, err := c.store.device(id); err != nil {
		return nil, err
	} else if device != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s: got one in use (%s), expected it unmounted", id, device)
	}
	if err := os.Remove(c.store.volume(id)); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (c *controller) ValidateVolumeCapabilities(
	_ context.Context, request *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	release, err := c.store.hold(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if len(request.GetVolumeCapabilities()) == 0 {
		return nil, able()
	}
	if _, err := c.store.size(request.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := able(request.GetVolumeCapabilities()...); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: request.GetVolumeContext(), VolumeCapabilities: request.GetVolumeCapabilities(),
		Parameters: request.GetParameters(),
	}}, nil
}

// CreateSnapshot copies a volume while nothing can write to it: one in use is frozen, and no call mounts one that is not.
func (c *controller) CreateSnapshot(
	_ context.Context, request *csi.CreateSnapshotRequest,
) (*csi.CreateSnapshotResponse, error) {
	id, volume := request.GetName(), request.GetSourceVolumeId()
	if id == "" || volume == "" {
		return nil, status.Error(codes.InvalidArgument, "got no name or no source volume, expected both")
	}
	release, err := c.store.hold(volume, id)
	if err != nil {
		return nil, err
	}
	defer release()
	path, about, err := c.store.snapshot(id)
	if err != nil {
		return nil, err
	}
	if path == "" {
		if err := c.snapshot(id, volume); err != nil {
			return nil, err
		}
		if path, about, err = c.store.snapshot(id); err != nil {
			return nil, err
		}
	}
	if filepath.Base(path) != volume {
		return nil, status.Errorf(codes.AlreadyExists, "snapshot %s: got one of %s, expected %s", id, filepath.Base(path), volume)
	}
	return &csi.CreateSnapshotResponse{Snapshot: &csi.Snapshot{
		SnapshotId: id, SourceVolumeId: volume, SizeBytes: about.Size(), ReadyToUse: true,
		CreationTime: timestamppb.New(about.ModTime()),
	}}, nil
}

func (c *controller) snapshot(id, volume string) error {
	size, err := c.store.size(volume)
	if err != nil {
		return err
	}
	folder := filepath.Join(c.store.folder, drafts, "of-"+id)
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	err = c.store.frozen(volume, func() error {
		draft, err := c.store.draft(id, c.store.volume(volume), size)
		if err != nil {
			_ = os.Remove(draft)
			return err
		}
		return rename(draft, filepath.Join(folder, volume))
	})
	if err != nil {
		return err
	}
	return rename(folder, filepath.Join(c.store.folder, snapshots, id))
}

func (c *controller) DeleteSnapshot(
	_ context.Context, request *csi.DeleteSnapshotRequest,
) (*csi.DeleteSnapshotResponse, error) {
	release, err := c.store.hold(request.GetSnapshotId())
	if status.Code(err) == codes.NotFound {
		return &csi.DeleteSnapshotResponse{}, nil
	} else if err != nil {
		return nil, err
	}
	defer release()
	return &csi.DeleteSnapshotResponse{}, os.RemoveAll(filepath.Join(c.store.folder, snapshots, request.GetSnapshotId()))
}

func (c *controller) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, call := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: call}},
		})
	}
	return answer, nil
}
