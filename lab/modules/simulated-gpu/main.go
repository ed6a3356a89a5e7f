// Command simulated-gpu is a kubelet device plugin for GPUs that do not exist: it registers, advertises and allocates
// them as NVIDIA's plugin does, so that scheduling can be seen without hardware. Nothing runs on them: no CUDA, no driver.
//
//	simulated-gpu --count=2         serves until SIGTERM
//	simulated-gpu sick 0 | well 0   from within its pod: the health of device 0
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/fsnotify/fsnotify"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const sickFolder = "/run/simulated-gpu" // a file per sick device, named by its number

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1:]); err != nil {
		log.Fatalf("simulated-gpu: %v", err)
	}
}

func run(arguments []string) error {
	if len(arguments) == 2 && (arguments[0] == "sick" || arguments[0] == "well") {
		return flip(arguments[0] == "sick", arguments[1])
	}
	flags := flag.NewFlagSet("simulated-gpu", flag.ContinueOnError)
	resource := flags.String("resource", "nvidia.com/gpu", "the resource's name")
	count := flags.Int("count", 1, "devices of this node")
	node := flags.String("node", os.Getenv("NODE_NAME"), "this node's name")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *count < 1 || *node == "" || flags.NArg() > 0 {
		return errors.New("expected --count of at least 1, --node (or NODE_NAME) and no other words")
	}
	return serve(*resource, *node, *count)
}

func flip(sick bool, device string) error {
	if _, err := strconv.Atoi(device); err != nil {
		return fmt.Errorf("device: got %q, expected its number", device)
	}
	path := filepath.Join(sickFolder, device)
	if sick {
		return os.WriteFile(path, nil, 0o644)
	}
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// serve runs the plugin; a kubelet that starts anew removes every socket, makes its own, and is registered with again.
func serve(resource, node string, count int) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	for _, folder := range []string{api.DevicePluginPath, sickFolder} {
		if err := watcher.Add(folder); err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
	}
	devices := newDevices(node, count)
	for {
		server, err := start(devices, resource)
		if err != nil {
			return err
		}
		log.Printf("registered %d simulated devices %s on %s; CUDA does not run on them", count, resource, node)
		again := follow(ctx, watcher, devices)
		server.Stop()
		if !again {
			return nil
		}
		log.Print("the kubelet has started anew")
	}
}

// follow passes changes of health on; it returns true when the kubelet's socket is a new one, false at the end.
func follow(ctx context.Context, watcher *fsnotify.Watcher, devices *devices) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case event := <-watcher.Events:
			if filepath.Dir(event.Name) == sickFolder {
				devices.look()
			} else if event.Name == api.KubeletSocket && event.Has(fsnotify.Create) {
				return true
			}
		}
	}
}
