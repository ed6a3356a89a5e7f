package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

func TestD4AWatchThatFailsIsListedAgain(t *testing.T) {
	log.SetOutput(io.Discard)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	failures := map[string]func(http.ResponseWriter){
		"an error event": func(w http.ResponseWriter) {
			io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","code":410,"metadata":{}}}`)
		},
		"half an object": func(w http.ResponseWriter) {
			io.WriteString(w, `{"type":"ADDED","object":{"metadata":{"name":"half","resourceVersion":"9"`)
		},
	}
	for _, status := range []int{410, 429, 500, 504} {
		failures[fmt.Sprint(status)] = func(w http.ResponseWriter) { w.WriteHeader(status) }
	}
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lists atomic.Int32
			watched, done := make(chan string), make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				query := request.URL.Query()
				switch version := query.Get("resourceVersion"); {
				case query.Get("watch") == "": // the second list has another pod, in another version
					number := lists.Add(1)
					list := `{"metadata":{"resourceVersion":"%d"},"items":[{"metadata":{"name":"pod-%d"}}]}`
					fmt.Fprintf(w, list, number, number)
				case version == "1":
					fail(w)
				default:
					select {
					case watched <- version:
						<-done
					case <-done: // the agent asks again until its server is closed
					}
				}
			}))
			defer server.Close()
			defer close(done)
			state := newState()
			go follow(server.Client(), server.URL+podsPath, podsPath, state)
			select {
			case version := <-watched:
				if version != "2" {
					t.Errorf("got a watch from version %s, expected 2", version)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("got no second watch, expected one from version 2")
			}
			state.lock.Lock()
			defer state.lock.Unlock()
			pods := state.kinds[podsPath]
			if _, listed := pods["/pod-2"]; !listed || len(pods) != 1 {
				t.Errorf("got %v, expected pod-2 alone", pods)
			}
		})
	}
}
