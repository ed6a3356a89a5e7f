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
	passing     = regexp.MustCompile(`(?m)^#.*\n| \[\d+:\d+\]$`) // comments with the time, and counters
)

// alone is a chain that nothing calls, with one match.
const alone = "*security\n:probe - [0:0]\n-A probe%s -j RETURN\nCOMMIT\n"

// table is the node's iptables table "security".
type table struct {
	refused map[string]bool // matches that this kernel or iptables does not know
	written string          // as iptables prints what was applied last
	restore func(rules string, arguments ...string) error
	save    func() string
}

func newTable() *table {
	return &table{refused: map[string]bool{}, restore: restore, save: save}
}

// apply replaces the whole table at once. A match that iptables refuses is left out, so that what it would allow is
// dropped, and all other rules apply.
func (t *table) apply(rules string) error {
	err := t.restore(t.usable(rules))
	if err != nil && t.probe(rules) {
		err = t.restore(t.usable(rules))
	}
	if err == nil {
		t.written = t.save()
	}
	return err
}

// intact tells whether the table is still what was applied last.
func (t *table) intact() bool {
	return t.save() == t.written
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

// save prints the table; nothing if it cannot be read, which differs from every table.
func save() string {
	output, err := exec.Command("iptables-save", "--table", "security").Output()
	if err != nil {
		return ""
	}
	return passing.ReplaceAllString(string(output), "")
}
