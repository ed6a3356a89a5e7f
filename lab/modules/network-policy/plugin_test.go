package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const arguments = "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=fresh;K8S_POD_UID=f"
const added = `{"cniVersion": "1.0.0", "prevResult": {"ips": [{"address": "198.18.64.8/24"}]}}`

func TestB3ThePluginWaitsForTheAgent(t *testing.T) {
	socket = filepath.Join(t.TempDir(), "agent")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	state := cluster(t, denyAll)
	go serve(listener, state)
	var output strings.Builder
	ended := make(chan int)
	go func() { ended <- plugin("ADD", arguments, strings.NewReader(added), &output) }()
	select {
	case <-ended:
		t.Fatal("got an end, expected it to wait for the table")
	case <-time.After(100 * time.Millisecond):
	}
	_, addresses, _ := state.rules("n")
	state.release(addresses)
	if status := <-ended; status != 0 || !strings.Contains(output.String(), "198.18.64.8") {
		t.Errorf("got %d and %q, expected the earlier plugin's result", status, output.String())
	}
}

func TestB3WithoutAnAgentNoPodStarts(t *testing.T) {
	socket = filepath.Join(t.TempDir(), "none")
	var output strings.Builder
	if plugin("ADD", arguments, strings.NewReader(added), &output) != 1 || !strings.Contains(output.String(), `"code":11`) {
		t.Errorf("got %q, expected an error", output.String())
	}
	if status := plugin("DEL", arguments, strings.NewReader("{}"), &output); status != 0 {
		t.Errorf("got %d, expected pods to go without an agent", status)
	}
}

func TestB5AServerThatDoesNotAnswerIsGivenUp(t *testing.T) {
	before := patience
	patience = 50 * time.Millisecond
	defer func() { patience = before }()
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	defer server.Close()
	defer close(done)
	ended := make(chan error)
	go func() {
		_, err := get(client(nil), server.URL)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("got an answer")
		}
	case <-time.After(5 * time.Second):
		t.Error("still waiting")
	}
}
