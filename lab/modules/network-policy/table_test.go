package main

import (
	"errors"
	"strings"
	"testing"
)

const guarded = "*security\n:Ingress-198.18.64.7 - [0:0]\n" +
	"-A FORWARD -m conntrack --ctreplsrc 198.18.64.7 -j Ingress-198.18.64.7\n" +
	"-A Ingress-198.18.64.7 -m conntrack --ctproto sctp --ctreplsrcport 80 -j RETURN\n" +
	"-A Ingress-198.18.64.7 -m conntrack --ctorigsrc 198.18.64.8 -j RETURN\n" +
	"-A Ingress-198.18.64.7 -j DROP\nCOMMIT\n"

// kernel knows no sctp; it keeps the last whole table.
type kernel struct {
	rules  string
	probes int
	locked bool
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
	return &table{refused: map[string]bool{}, restore: restore, save: func() string { return k.rules }}
}

func TestB4ARefusedLineDoesNotFreezeTheOthers(t *testing.T) {
	kernel := &kernel{}
	table := kernel.table()
	if err := table.apply(guarded); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(guarded, "-A Ingress-198.18.64.7 -m conntrack --ctproto sctp --ctreplsrcport 80 -j RETURN\n", "", 1)
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

func TestB5AChangedTableIsNotIntact(t *testing.T) {
	kernel := &kernel{}
	table := kernel.table()
	if err := table.apply(guarded); err != nil || !table.intact() {
		t.Fatalf("got %v, expected a table as it was applied", err)
	}
	kernel.rules = "*security\nCOMMIT\n"
	if table.intact() {
		t.Error("expected a flush to be seen")
	}
}

func TestB5CountersAndTimesAreNoChange(t *testing.T) {
	one := "# Generated on Sun\n*security\n:INPUT ACCEPT [1:52]\n-A INPUT -j DROP\nCOMMIT\n# Completed on Sun\n"
	two := strings.NewReplacer("Sun", "Mon", "[1:52]", "[27:4052]").Replace(one)
	if passing.ReplaceAllString(one, "") != passing.ReplaceAllString(two, "") {
		t.Error("expected the same table")
	}
}
