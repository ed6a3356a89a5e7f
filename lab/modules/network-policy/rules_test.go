package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

const pods = `[
	{"metadata": {"namespace": "a", "name": "server", "uid": "s"},
	 "spec": {"nodeName": "n", "containers": [{"ports": [{"name": "web", "containerPort": 80, "protocol": "TCP"}]}],
	  "initContainers": [
	   {"restartPolicy": "Always", "ports": [{"name": "metrics", "containerPort": 90, "protocol": "TCP"}]},
	   {"ports": [{"name": "metrics", "containerPort": 91, "protocol": "TCP"}]}]},
	 "status": {"phase": "Running", "podIP": "198.18.64.7"}},
	{"metadata": {"namespace": "a", "name": "fresh", "uid": "f"}, "spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}]`

// cluster has the two pods, and one policy for both.
func cluster(t *testing.T, policy string) *state {
	t.Helper()
	state := newState()
	for kind, text := range map[string]string{
		podsPath: pods, "/api/v1/namespaces": `[{"metadata": {"name": "a"}}]`,
		"/apis/networking.k8s.io/v1/networkpolicies": `[{"metadata": {"namespace": "a", "name": "p"}, "spec": ` + policy + `}]`,
	} {
		var items []object
		if err := json.Unmarshal([]byte(text), &items); err != nil {
			t.Fatal(err)
		}
		state.replace(kind, items)
	}
	return state
}

const denyAll = `{"policyTypes": ["Ingress", "Egress"]}`

func TestB3NoRuleTrustsAConnectionForBeingEstablished(t *testing.T) {
	rules, _, _ := cluster(t, denyAll).rules("n")
	if strings.Contains(rules, "ESTABLISHED") {
		t.Errorf("got %s, expected every packet to be judged", rules)
	}
	for _, line := range []string{
		"-A FORWARD -m conntrack --ctreplsrc 198.18.64.7 -j Ingress-198.18.64.7\n",
		"-A FORWARD -m conntrack --ctorigsrc 198.18.64.7 -j Egress-198.18.64.7\n",
		"-A INPUT -m conntrack --ctorigsrc 198.18.64.7 -j Egress-198.18.64.7\n",
		"-A FORWARD -m conntrack --ctstate INVALID,UNTRACKED -j DROP\n",
	} {
		if !strings.Contains(rules, line) {
			t.Errorf("got %s, expected %s", rules, line)
		}
	}
}

func TestB5APodReachesItself(t *testing.T) {
	rules, _, _ := cluster(t, denyAll).rules("n")
	for _, line := range []string{
		"-A Ingress-198.18.64.7 -m conntrack --ctorigsrc 198.18.64.7 -j RETURN\n-A Ingress-198.18.64.7 -j DROP\n",
		"-A Egress-198.18.64.7 -m conntrack --ctreplsrc 198.18.64.7 -j RETURN\n-A Egress-198.18.64.7 -j DROP\n",
	} {
		if !strings.Contains(rules, line) {
			t.Errorf("got %s, expected %s", rules, line)
		}
	}
}

func TestB5ASidecarsPortHasAName(t *testing.T) {
	rules, _, _ := cluster(t, `{"policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": "metrics"}]}]}`).rules("n")
	if !strings.Contains(rules, "--ctproto tcp --ctreplsrcport 90 -j RETURN") || strings.Contains(rules, "port 91") {
		t.Errorf("got %s, expected port 90 and not an ended container's 91", rules)
	}
}

func TestB3APodStartsOnceItsRulesAreInTheTable(t *testing.T) {
	state := cluster(t, denyAll)
	guarded := state.begin("f", "198.18.64.8")
	rules, addresses, _ := state.rules("n")
	if !strings.Contains(rules, ":Ingress-198.18.64.8 ") || addresses["f"] != "198.18.64.8" {
		t.Fatalf("got %s and %v, expected a chain for the address that only the CNI knows", rules, addresses)
	}
	state.release(map[string]string{"f": "198.18.64.6"}) // of an earlier sandbox
	select {
	case <-guarded:
		t.Fatal("released before its rules were applied")
	default:
	}
	state.release(addresses)
	state.release(addresses)
	select {
	case <-guarded:
	case <-time.After(time.Second):
		t.Fatal("not released")
	}
}

func TestB3TheNewAddressOfARestartedSandboxCounts(t *testing.T) {
	state := cluster(t, denyAll)
	state.begin("s", "198.18.64.9")
	rules, _, _ := state.rules("n")
	if strings.Contains(rules, "198.18.64.7") || !strings.Contains(rules, ":Egress-198.18.64.9 ") {
		t.Errorf("got %s, expected the address of now", rules)
	}
	state.replace(podsPath, nil)
	if len(state.starting) > 0 {
		t.Errorf("got %v, expected nothing of a pod that is gone", state.starting)
	}
}

func TestOnlyAChangeThatMayAlterARuleWakesTheLoop(t *testing.T) {
	state := cluster(t, denyAll)
	woken := func() bool {
		select {
		case <-state.changed:
			return true
		default:
			return false
		}
	}
	table := func() string {
		one, _, _ := state.rules("n")
		other, _, _ := state.rules("m")
		return one + other
	}
	woken()
	for _, step := range []struct {
		what, pod string
		gone, due bool
	}{
		{"created", `{"metadata": {"uid": "x", "name": "x"}}`, false, false},
		{"on a node", `{"metadata": {"uid": "x", "name": "x"}, "spec": {"nodeName": "m"}}`, false, false},
		{"an address", `{"metadata": {"uid": "x", "name": "x"}, "status": {"podIP": "198.18.65.2"}}`, false, true},
		{"ready", `{"metadata": {"uid": "x", "name": "x", "resourceVersion": "9"}, "status": {"podIP": "198.18.65.2"}}`, false, false},
		{"a label", `{"metadata": {"uid": "x", "name": "x", "labels": {"a": "b"}}, "status": {"podIP": "198.18.65.2"}}`, false, true},
		{"ended", `{"metadata": {"uid": "x", "name": "x"}, "status": {"podIP": "198.18.65.2", "phase": "Failed"}}`, false, true},
		{"gone", `{"metadata": {"uid": "x", "name": "x"}, "status": {"podIP": "198.18.65.2", "phase": "Failed"}}`, true, false},
		{"gone with an address", `{"metadata": {"namespace": "a", "name": "server", "uid": "s"}, "status": {"podIP": "198.18.64.7"}}`, true, true},
		{"bound late", `{"metadata": {"namespace": "a", "name": "fresh", "uid": "f"}, "spec": {"nodeName": "m"}}`, false, true},
	} {
		if step.what == "bound late" { // its sandbox was there first
			state.begin("f", "198.18.64.8")
			woken()
		}
		var pod object
		if err := json.Unmarshal([]byte(step.pod), &pod); err != nil {
			t.Fatal(err)
		}
		before := table()
		state.set(podsPath, pod, step.gone)
		if got := woken(); got != step.due {
			t.Errorf("%s: got %v, expected %v", step.what, got, step.due)
		}
		if !step.due && table() != before {
			t.Errorf("%s: got another table, expected the same", step.what)
		}
	}
	var policy object
	policy.Metadata.Name = "q"
	if state.set("/apis/networking.k8s.io/v1/networkpolicies", policy, false); !woken() {
		t.Error("got nothing of a new policy, expected a new table")
	}
}
