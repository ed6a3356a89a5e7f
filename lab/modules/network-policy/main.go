// Command network-policy makes one node of the lab obey NetworkPolicies: the bridge CNI enforces none. It watches pods,
// namespaces and policies, and keeps the node's IPv4 table "security", which nobody else uses, as they say.
//
// It is a CNI plugin too: a new pod's sandbox is ready when the table has the pod's rules, so no pod runs without them.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	settle = 20 * time.Millisecond // changes come in groups
	again  = time.Second           // after a failure
	look   = 5 * time.Second       // between looks at the table
	watch  = "240"                 // seconds of one request
)

var patience = 15 * time.Second // until the API server begins an answer, or its end of a connection counts as dead

func main() {
	log.SetFlags(0)
	if command := os.Getenv("CNI_COMMAND"); command != "" {
		os.Exit(plugin(command, os.Getenv("CNI_ARGS"), os.Stdin, os.Stdout))
	}
	node := flag.String("node", "", "this node's name")
	api := flag.String("api", "", "the API server, e.g. https://198.18.0.1:6443")
	ca := flag.String("ca", "", "certificate of its authority")
	certificate := flag.String("cert", "", "certificate of a user who may list and watch pods, namespaces and policies")
	key := flag.String("key", "", "its key")
	flag.Parse()
	if *node == "" || *api == "" || flag.NArg() > 0 {
		log.Fatal("network-policy: expected --node and --api and no other words")
	}
	client, err := connect(*ca, *certificate, *key)
	if err != nil {
		log.Fatalf("network-policy: %v", err)
	}
	state := newState()
	for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces", "/apis/networking.k8s.io/v1/networkpolicies"} {
		go follow(client, *api+path, path, state)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatalf("network-policy: %v", err)
	}
	go serve(listener, state)
	table, last, ticks := newTable(), "", time.Tick(look)
	for {
		select {
		case <-state.changed:
			time.Sleep(settle)
		case <-ticks:
			if last == "" || table.intact() {
				continue
			}
			log.Print("table security is not as it was written; writing it again")
			last = ""
		}
		rules, pods, whole := state.rules(*node)
		if !whole {
			continue
		}
		if rules != last {
			if err := table.apply(rules); err != nil {
				log.Printf("%v", err)
				time.Sleep(again)
				state.tell()
				continue
			}
			last = rules
		}
		state.release(pods)
	}
}

// connect makes a client that trusts one authority and shows one certificate.
func connect(ca, certificate, key string) (*http.Client, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate", ca)
	}
	own, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}}
	return client(config), nil
}

// client makes requests that end: a watch may be silent for long, a server that has gone away may not.
func client(config *tls.Config) *http.Client {
	alive := net.KeepAliveConfig{Enable: true, Idle: patience / 3, Interval: patience / 3, Count: 2}
	dialer := &net.Dialer{Timeout: patience, KeepAliveConfig: alive}
	return &http.Client{Timeout: 5 * time.Minute, Transport: &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: config,
		TLSHandshakeTimeout: patience, ResponseHeaderTimeout: patience,
	}}
}

// follow keeps one kind of the state as the cluster has it, for ever.
func follow(client *http.Client, url, kind string, state *state) {
	for {
		version, err := list(client, url, kind, state)
		for err == nil {
			version, err = changes(client, url, version, kind, state)
		}
		log.Printf("%s: %v; listing anew", kind, err)
		time.Sleep(again)
	}
}

func get(client *http.Client, url string) (io.ReadCloser, error) {
	answer, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, errors.New(answer.Status)
	}
	return answer.Body, nil
}

// list replaces all objects of a kind, and returns the version they have.
func list(client *http.Client, url, kind string, state *state) (string, error) {
	body, err := get(client, url)
	if err != nil {
		return "", err
	}
	defer body.Close()
	var found struct {
		Metadata meta     `json:"metadata"`
		Items    []object `json:"items"`
	}
	if err := json.NewDecoder(body).Decode(&found); err != nil {
		return "", err
	}
	state.replace(kind, found.Items)
	return found.Metadata.ResourceVersion, nil
}

// changes follows a kind from a version on until the server ends the request, and returns the version it came to.
func changes(client *http.Client, url, version, kind string, state *state) (string, error) {
	query := "?watch=true&allowWatchBookmarks=true&timeoutSeconds=" + watch + "&resourceVersion=" + version
	body, err := get(client, url+query)
	if err != nil {
		return "", err
	}
	defer body.Close()
	stream := json.NewDecoder(body)
	for {
		var event struct {
			Type   string `json:"type"`
			Object object `json:"object"`
		}
		if err := stream.Decode(&event); errors.Is(err, io.EOF) {
			return version, nil
		} else if err != nil {
			return "", err
		}
		if event.Type == "ERROR" {
			return "", errors.New("the version is gone")
		}
		version = event.Object.Metadata.ResourceVersion
		if event.Type != "BOOKMARK" {
			state.set(kind, event.Object, event.Type == "DELETED")
		}
	}
}
