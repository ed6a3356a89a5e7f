package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"strings"
	"time"
)

const wait = 20 * time.Second // for a pod's rules; then the kubelet tries again

var socket = "@gangplank-network-policy" // abstract: of the node's network namespace, and gone with the agent

// request is what the plugin tells the agent: a new pod, and its address.
type request struct {
	UID     string `json:"uid"`
	Address string `json:"address"`
}

// plugin is one call of the CNI, chained after the one that gives addresses. It returns the exit status.
func plugin(command, arguments string, input io.Reader, output io.Writer) int {
	var config struct {
		Version string          `json:"cniVersion"`
		Result  json.RawMessage `json:"prevResult"`
	}
	err := json.NewDecoder(input).Decode(&config)
	switch {
	case command == "VERSION":
		fmt.Fprintln(output, `{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}`)
		return 0
	case command != "ADD":
		return 0
	case err == nil:
		err = announce(arguments, config.Result)
	}
	if err != nil {
		const later = 11 // try again later
		_ = json.NewEncoder(output).Encode(map[string]any{
			"cniVersion": config.Version, "code": later, "msg": "network-policy: " + err.Error(),
		})
		return 1
	}
	fmt.Fprintf(output, "%s\n", config.Result)
	return 0
}

// announce tells the agent of a new pod, and waits until it is guarded.
func announce(arguments string, result []byte) error {
	var addresses struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(result, &addresses); err != nil {
		return err
	}
	pod := request{}
	for _, argument := range strings.Split(arguments, ";") {
		if uid, ok := strings.CutPrefix(argument, "K8S_POD_UID="); ok {
			pod.UID = uid
		}
	}
	for _, ip := range addresses.IPs {
		if ip.Address.Addr().Is4() {
			pod.Address = ip.Address.Addr().String()
		}
	}
	if pod.UID == "" || pod.Address == "" {
		return errors.New("no pod's UID, or no IPv4 address")
	}
	agent, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer agent.Close()
	_ = agent.SetDeadline(time.Now().Add(wait))
	if err := json.NewEncoder(agent).Encode(pod); err != nil {
		return err
	}
	if _, err := io.ReadFull(agent, make([]byte, 1)); err != nil {
		return fmt.Errorf("%s has no rules yet: %w", pod.Address, err)
	}
	return nil
}

// serve answers plugins, for ever.
func serve(listener net.Listener, state *state) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Printf("%v", err)
			time.Sleep(again)
			continue
		}
		go func() {
			defer connection.Close()
			_ = connection.SetDeadline(time.Now().Add(wait))
			var pod request
			if json.NewDecoder(connection).Decode(&pod) != nil {
				return
			}
			select {
			case <-state.begin(pod.UID, pod.Address):
				_, _ = connection.Write([]byte{'\n'})
			case <-time.After(wait):
			}
		}()
	}
}
