package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

const guarded = "*security\n:Ingress-198.18.64.7 - [0:0]\n" +
	"-A FORWARD -d 198.18.64.7 -j Ingress-198.18.64.7\n" +
	"-A Ingress-198.18.64.7 -p sctp --dport 80 -j RETURN\n" +
	"-A Ingress-198.18.64.7 -s 198.18.64.8 -j RETURN\n" +
	"-A Ingress-198.18.64.7 -j DROP\nCOMMIT\n"

// kernel knows no sctp; it keeps the last whole table and the forgotten addresses.
type kernel struct {
	rules     string
	probes    int
	forgotten []string
	locked    bool
}

func (k *kernel) table() *table {
	restore := func(rules string, arguments ...string) error {
		if len(arguments) > 0 {
			k.probes++
		}
		if k.locked || strings.Contains(rules, "sctp") {
			return errors.New("unknown match")
		}
		if len(arguments) == 0 {
			k.rules = rules
		}
		return nil
	}
	forget := func(address string) { k.forgotten = append(k.forgotten, address) }
	return &table{guarded: map[string]bool{}, refused: map[string]bool{}, restore: restore, forget: forget}
}

func TestB4ARefusedLineDoesNotFreezeTheOthers(t *testing.T) {
	kernel := &kernel{}
	table := kernel.table()
	if err := table.apply(guarded); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(guarded, "-A Ingress-198.18.64.7 -p sctp --dport 80 -j RETURN\n", "", 1)
	if kernel.rules != want {
		t.Errorf("got %q, expected %q", kernel.rules, want)
	}
	probes := kernel.probes
	if err := table.apply(guarded + "\n"); err != nil || kernel.probes != probes {
		t.Errorf("got %v and %d more probes, expected a refused match to be known", err, kernel.probes-probes)
	}
}

func TestB4ATableThatIsRefusedForAnotherReasonIsAnError(t *testing.T) {
	kernel := &kernel{}
	if kernel.table().apply("*security\n-A FORWARD -p sctp -j DROP\nCOMMIT\n") == nil || kernel.rules != "" {
		t.Error("expected an error and no table")
	}
}

func TestB4ALockedTableBlamesNoMatch(t *testing.T) {
	kernel := &kernel{locked: true}
	table := kernel.table()
	if table.apply(guarded) == nil || len(table.refused) > 0 {
		t.Errorf("got %v refused, expected an error and none", table.refused)
	}
}

func TestB3ConnectionsFromBeforeTheGuardAreForgottenOnce(t *testing.T) {
	kernel := &kernel{}
	table := kernel.table()
	for range 2 {
		if err := table.apply(guarded); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(kernel.forgotten, []string{"198.18.64.7"}) {
		t.Errorf("got %v, expected the pod's address once", kernel.forgotten)
	}
	if err := table.apply("*security\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	if err := table.apply(guarded); err != nil || len(kernel.forgotten) != 2 {
		t.Errorf("got %v and %v, expected the address again once it is guarded again", err, kernel.forgotten)
	}
}
