// Command loop-csi is a CSI driver for labs: a volume is a file of a folder, with an XFS file system in it, that a node
// mounts over a loop device. It provisions, grows and freezes what upstream's provisioner, resizer and snapshotter ask
// for on the volume's own node, and registers itself with the kubelet.
//
// It is not for production: nothing replicates a volume, and a node that is gone takes its volumes with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	name    = "loop.csi.gangplank.dev"
	version = "0.1.0"
	nodeKey = name + "/node" // of a volume's topology, and the label that the kubelet gives its node
)

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1:]); err != nil {
		log.Fatalf("loop-csi: %v", err)
	}
}

func run(arguments []string) error {
	flags := flag.NewFlagSet("loop-csi", flag.ContinueOnError)
	folder := flags.String("folder", "", "folder of the volumes and snapshots")
	node := flags.String("node", os.Getenv("NODE_NAME"), "this node's name")
	socket := flags.String("socket", "", "socket of the driver, as the kubelet sees it too")
	registry := flags.String("registry", "", "the kubelet's folder of plugins' sockets; without it, nothing is registered")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *folder == "" || *node == "" || *socket == "" || flags.NArg() > 0 {
		return errors.New("expected --folder, --socket, --node (or NODE_NAME) and no other words")
	}
	store, err := newStore(*folder)
	if err != nil {
		return err
	}
	if err := store.thaw(); err != nil { // an earlier process may have been killed while it copied
		return err
	}
	return serve(store, *node, *socket, *registry)
}

// serve answers until a signal, or until a server fails.
func serve(store *store, node, socket, registry string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	driver := grpc.NewServer(grpc.UnaryInterceptor(logged))
	csi.RegisterIdentityServer(driver, identity{})
	csi.RegisterControllerServer(driver, &controller{store: store, node: node})
	csi.RegisterNodeServer(driver, newNode(store, node))
	servers := map[string]*grpc.Server{socket: driver}
	failed := make(chan error, 3)
	if registry != "" {
		server := grpc.NewServer()
		registration.RegisterRegistrationServer(server, &registrar{socket: socket, failed: failed})
		servers[filepath.Join(registry, name+"-reg.sock")] = server
	}
	for path, server := range servers {
		defer server.Stop()
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		listener, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		go func() { failed <- server.Serve(listener) }()
	}
	log.Printf("%s serves %s on %s", name, store.folder, node)
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

func logged(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, request)
	if err != nil {
		log.Printf("%s: %v", info.FullMethod, err)
	}
	return answer, err
}

// registrar answers the kubelet, which finds its socket by itself, also after the kubelet has started again.
type registrar struct {
	registration.UnimplementedRegistrationServer
	socket string
	failed chan<- error
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: name, Endpoint: r.socket, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		r.failed <- fmt.Errorf("the kubelet refuses the driver: %s", status.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

type identity struct {
	csi.UnimplementedIdentityServer
}

func (identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: name, VendorVersion: version}, nil
}

func (identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (identity) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	answer := &csi.GetPluginCapabilitiesResponse{}
	for _, service := range []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: service}},
		})
	}
	online := &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}
	answer.Capabilities = append(answer.Capabilities, &csi.PluginCapability{
		Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: online},
	})
	return answer, nil
}
