package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"
)

const mib = 1 << 20

// empty is a store without volumes, on a machine without loop devices and mounts.
func empty(t *testing.T) *store {
	t.Helper()
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "losetup"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs)
	store, err := newStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	store.mounter = mount.NewFakeMounter(nil)
	return store
}

// file makes one that has a size and no content.
func file(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func snapshotOf(store *store, id, volume string) error {
	_, err := (&controller{store: store}).CreateSnapshot(
		context.Background(), &csi.CreateSnapshotRequest{Name: id, SourceVolumeId: volume},
	)
	return err
}

func expect(t *testing.T, err error, code codes.Code) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("got %v, expected %v", err, code)
	}
}

func TestAVolumeThatIsBeingMountedIsNotCopied(t *testing.T) {
	store := empty(t)
	file(t, store.volume("a"), mib)
	release, err := store.hold("a")
	expect(t, err, codes.OK)
	expect(t, snapshotOf(store, "s", "a"), codes.Aborted)
	release()
	expect(t, snapshotOf(store, "s", "a"), codes.OK)
	expect(t, snapshotOf(store, "s", "a"), codes.OK) // the same one
}

func TestACallThatIsRefusedHoldsNothing(t *testing.T) {
	store := empty(t)
	release, err := store.hold("b")
	expect(t, err, codes.OK)
	_, err = store.hold("a", "b")
	expect(t, err, codes.Aborted)
	release()
	_, err = store.hold("a")
	expect(t, err, codes.OK)
}

func TestASnapshotMayBeCalledAsItsVolume(t *testing.T) {
	store := empty(t)
	file(t, store.volume("a"), mib)
	expect(t, snapshotOf(store, "a", "a"), codes.OK)
}

func TestAVolumeWithTheLongestIDIsCopied(t *testing.T) {
	store, id := empty(t), strings.Repeat("a", 128)
	file(t, store.volume(id), mib)
	expect(t, snapshotOf(store, "s", id), codes.OK)
}

func TestASnapshotLargerThanTheLimitIsOutOfRange(t *testing.T) {
	store := empty(t)
	file(t, filepath.Join(store.folder, snapshots, "s", "a"), smallest+2*mib)
	request := &csi.CreateVolumeRequest{
		Name: "b", CapacityRange: &csi.CapacityRange{LimitBytes: smallest + mib},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
		VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "s"},
		}},
	}
	_, err := (&controller{store: store}).CreateVolume(context.Background(), request)
	expect(t, err, codes.OutOfRange)
	_, err = store.size("b")
	expect(t, err, codes.NotFound)
}

func TestAVolumeThatIsNotMountedDoesNotGrow(t *testing.T) {
	store := empty(t)
	file(t, store.volume("a"), mib)
	_, err := newNode(store, "here").NodeExpandVolume(
		context.Background(), &csi.NodeExpandVolumeRequest{VolumeId: "a", VolumePath: t.TempDir()},
	)
	expect(t, err, codes.NotFound)
	if size, err := store.size("a"); err != nil || size != mib {
		t.Fatalf("got %d bytes (%v), expected %d", size, err, mib)
	}
}
