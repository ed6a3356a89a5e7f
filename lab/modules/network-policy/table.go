package main

import (
	"fmt"
	"log"
	"os/exec"
	"regexp"
	"strings"
)

// What a policy allows is one line in the chain of a pod; its match is everything between the chain and the target.
var (
	allowedLine = regexp.MustCompile(`^-A (?:In|E)gress-\S+(.*) -j RETURN$`)
	chainLine   = regexp.MustCompile(`(?m)^:((?:In|E)gress-(\S+)) `)
)

// alone is a chain that nothing calls, with one match.
const alone = "*security\n:probe - [0:0]\n-A probe%s -j RETURN\nCOMMIT\n"

// table is the node's iptables table "security".
type table struct {
	guarded map[string]bool // chains of pods in the table
	refused map[string]bool // matches that this kernel or iptables does not know
	restore func(rules string, arguments ...string) error
	forget  func(address string)
}

func newTable() *table {
	guarded := map[string]bool{} // after a restart of this program, the table still has its chains
	if saved, err := exec.Command("iptables-save", "--table", "security").Output(); err == nil {
		for _, chain := range chainLine.FindAllStringSubmatch(string(saved), -1) {
			guarded[chain[1]] = true
		}
	}
	return &table{guarded: guarded, refused: map[string]bool{}, restore: restore, forget: forget}
}

// apply replaces the whole table at once. A match that iptables refuses is left out, so that what it would allow is
// dropped, and all other rules apply. Connections from before a pod was guarded are cut.
func (t *table) apply(rules string) error {
	err := t.restore(t.usable(rules))
	if err != nil && t.probe(rules) {
		err = t.restore(t.usable(rules))
	}
	if err != nil {
		return err
	}
	guarded := map[string]bool{}
	for _, chain := range chainLine.FindAllStringSubmatch(rules, -1) {
		guarded[chain[1]] = true
		if !t.guarded[chain[1]] {
			t.forget(chain[2])
		}
	}
	t.guarded = guarded
	return nil
}

// usable is the rules without the refused matches.
func (t *table) usable(rules string) string {
	lines := []string{}
	for _, line := range strings.Split(rules, "\n") {
		if match := allowedLine.FindStringSubmatch(line); match == nil || !t.refused[match[1]] {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// probe tries each match alone, in a chain that nothing calls; it reports whether any new one was refused.
func (t *table) probe(rules string) bool {
	fresh, tried := false, map[string]bool{}
	if t.restore(fmt.Sprintf(alone, ""), "--noflush") != nil { // not the fault of a match
		return false
	}
	for _, line := range strings.Split(rules, "\n") {
		match := allowedLine.FindStringSubmatch(line)
		if match == nil || tried[match[1]] || t.refused[match[1]] {
			continue
		}
		tried[match[1]] = true
		if err := t.restore(fmt.Sprintf(alone, match[1]), "--noflush"); err != nil {
			log.Printf("left out, so dropped:%s: %v", match[1], err)
			t.refused[match[1]], fresh = true, true
		}
	}
	return fresh
}

func restore(rules string, arguments ...string) error {
	command := exec.Command("iptables-restore", append([]string{"--wait", "5", "--table", "security"}, arguments...)...)
	command.Stdin = strings.NewReader(rules)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("iptables-restore: %w: %s", err, output)
	}
	return nil
}

// forget removes an address from the kernel's list of connections: their next packet is judged as a new connection.
func forget(address string) {
	for _, side := range []string{"--src", "--dst", "--reply-src", "--reply-dst"} {
		_ = exec.Command("conntrack", "--delete", "--family", "ipv4", side, address).Run() // it fails if there is none
	}
}
