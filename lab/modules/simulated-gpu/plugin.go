package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const socket = "gangplank-simulated-gpu.sock"

// devices are this node's, numbered from 0, with UUIDs that stay the same over restarts, as those of real ones do.
type devices struct {
	api.UnimplementedDevicePluginServer
	uuids   []string
	mutex   sync.Mutex
	sick    map[int]bool
	changed chan struct{} // closed, and replaced, when a device's health changes
}

func newDevices(node string, count int) *devices {
	found := &devices{changed: make(chan struct{})}
	for number := range count {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", node, number))
		found.uuids = append(found.uuids, fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
	}
	found.look()
	return found
}

// look reads which devices are sick.
func (d *devices) look() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.sick = map[int]bool{}
	for number := range d.uuids {
		if _, err := os.Stat(filepath.Join(sickFolder, strconv.Itoa(number))); err == nil {
			d.sick[number] = true
		}
	}
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *devices) list() (*api.ListAndWatchResponse, <-chan struct{}) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	answer := &api.ListAndWatchResponse{}
	for number, uuid := range d.uuids {
		health := api.Healthy
		if d.sick[number] {
			health = api.Unhealthy
		}
		answer.Devices = append(answer.Devices, &api.Device{ID: uuid, Health: health})
	}
	return answer, d.changed
}

// GetDevicePluginOptions asks for nothing beyond Allocate.
func (d *devices) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch tells the devices, and again at each change.
func (d *devices) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		answer, changed := d.list()
		if err := stream.Send(answer); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// Allocate shows a container which devices are its own, in the variable that NVIDIA's runtime reads. The kubelet has
// made sure that no other container has them.
func (d *devices) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		ids := strings.Join(container.DevicesIds, ",")
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": ids},
		})
		log.Printf("allocated %s", ids)
	}
	return answer, nil
}

// start serves the devices on a socket of their own and registers it with the kubelet.
func start(d *devices, resource string) (*grpc.Server, error) {
	path := api.DevicePluginPath + socket
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, d)
	go func() {
		if err := server.Serve(listener); err != nil {
			log.Fatalf("simulated-gpu: %v", err)
		}
	}()
	if err := register(resource); err != nil {
		server.Stop()
		return nil, fmt.Errorf("the kubelet refuses %s: %w", resource, err)
	}
	return server, nil
}

func register(resource string) error {
	kubelet, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: socket, ResourceName: resource}
	_, err = api.NewRegistrationClient(kubelet).Register(ctx, request, grpc.WaitForReady(true))
	return err
}
