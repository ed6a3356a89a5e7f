package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// What is allowed returns to the chain that asked, and is asked by the next pod's chain; what nothing allows is dropped.
const head = `*security
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN
`

// rules writes the table for a node's pods; not before every kind has been listed.
func (s *state) rules(node string) (string, bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if len(s.kinds) < 3 {
		return "", false
	}
	pods, policies := s.kinds["/api/v1/pods"], s.kinds["/apis/networking.k8s.io/v1/networkpolicies"]
	var chains, out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(pods)) {
		pod := pods[key]
		if pod.Spec.NodeName != node || !reachable(pod) {
			continue
		}
		address := pod.Status.PodIP
		for _, way := range []string{"Ingress", "Egress"} {
			allowed, guarded := []string{}, false
			for _, name := range slices.Sorted(maps.Keys(policies)) {
				policy := policies[name]
				same := policy.Metadata.Namespace == pod.Metadata.Namespace
				if same && slices.Contains(policy.Spec.PolicyTypes, way) && policy.Spec.PodSelector.matches(pod.Metadata.Labels) {
					guarded = true
					allowed = append(allowed, s.allowed(policy, pod, way)...)
				}
			}
			if !guarded {
				continue
			}
			chain := way + "-" + address
			fmt.Fprintf(&chains, ":%s - [0:0]\n", chain)
			// A connection from before the pod was guarded has been forgotten. Its packets in the other direction must not
			// make it known again: they would do so without a look at this chain.
			if way == "Ingress" {
				fmt.Fprintf(&out, "-A FORWARD -s %s -p tcp ! --syn -j DROP\n", address)
				fmt.Fprintf(&out, "-A FORWARD -d %s -j %s\n", address, chain)
			} else {
				fmt.Fprintf(&out, "-A FORWARD -d %s -p tcp ! --syn -j DROP\n", address)
				fmt.Fprintf(&out, "-A FORWARD -s %s -j %s\n-A INPUT -s %s -j %s\n", address, chain, address, chain)
			}
			slices.Sort(allowed)
			for _, match := range slices.Compact(allowed) {
				fmt.Fprintf(&out, "-A %s%s -j RETURN\n", chain, match)
			}
			fmt.Fprintf(&out, "-A %s -j DROP\n", chain)
		}
	}
	first, rest, _ := strings.Cut(head, "-A INPUT")
	return first + chains.String() + "-A INPUT" + rest + out.String() + "COMMIT\n", true
}

// reachable tells whether a pod has an address of its own.
func reachable(pod object) bool {
	ended := pod.Status.Phase == "Succeeded" || pod.Status.Phase == "Failed"
	address, err := netip.ParseAddr(pod.Status.PodIP)
	return !pod.Spec.HostNetwork && !ended && err == nil && address.Is4()
}

// allowed gives the matches of all that a policy lets in or out of one pod.
func (s *state) allowed(policy, pod object, way string) []string {
	rules, side := policy.Spec.Ingress, " -s "
	if way == "Egress" {
		rules, side = policy.Spec.Egress, " -d "
	}
	found := []string{}
	for _, rule := range rules {
		peers := rule.From
		if way == "Egress" {
			peers = rule.To
		}
		if len(peers) == 0 && way == "Ingress" { // anybody, on ports of this pod
			found = append(found, matches("", rule.Ports, &pod)...)
		} else if len(peers) == 0 {
			found = append(found, matches("", rule.Ports, nil)...)
		}
		for _, peer := range peers {
			if peer.Block != nil {
				target := &pod
				if way == "Egress" {
					target = nil // a named port of an address that is no pod's is none
				}
				for _, block := range without(peer.Block.CIDR, peer.Block.Except) {
					found = append(found, matches(side+block, rule.Ports, target)...)
				}
				continue
			}
			for _, other := range s.selected(peer, policy.Metadata.Namespace) {
				target := &pod
				if way == "Egress" {
					target = &other
				}
				found = append(found, matches(side+other.Status.PodIP, rule.Ports, target)...)
			}
		}
	}
	return found
}

// selected gives the pods that a peer means.
func (s *state) selected(peer peer, namespace string) []object {
	found := []object{}
	for _, pod := range s.kinds["/api/v1/pods"] {
		space := s.kinds["/api/v1/namespaces"]["/"+pod.Metadata.Namespace]
		there := pod.Metadata.Namespace == namespace
		if peer.Namespaces != nil {
			there = peer.Namespaces.matches(space.Metadata.Labels)
		}
		if there && reachable(pod) && (peer.Pods == nil || peer.Pods.matches(pod.Metadata.Labels)) {
			found = append(found, pod)
		}
	}
	return found
}

// matches narrows a match to ports, each a line; names are those of the pod that is talked to.
func matches(side string, ports []port, target *object) []string {
	if len(ports) == 0 {
		return []string{side}
	}
	found := []string{}
	for _, port := range ports {
		protocol := strings.ToLower(port.Protocol)
		if protocol == "" {
			protocol = "tcp"
		}
		line := side + " -p " + protocol
		text := strings.Trim(string(port.Port), `"`)
		number, err := strconv.Atoi(text)
		switch {
		case text == "" || text == "null":
			found = append(found, line)
		case err == nil && port.End > number:
			found = append(found, fmt.Sprintf("%s --dport %d:%d", line, number, port.End))
		case err == nil:
			found = append(found, fmt.Sprintf("%s --dport %d", line, number))
		case target != nil:
			for _, container := range target.Spec.Containers {
				for _, named := range container.Ports {
					if named.Name == text && strings.ToLower(named.Protocol) == protocol {
						found = append(found, fmt.Sprintf("%s --dport %d", line, named.Number))
					}
				}
			}
		}
	}
	return found
}

// without gives the blocks of a CIDR that are in none of others; blocks of IPv6 are none.
func without(cidr string, except []string) []string {
	block, err := netip.ParsePrefix(cidr)
	if err != nil || !block.Addr().Is4() {
		return nil
	}
	blocks := []netip.Prefix{block.Masked()}
	for _, text := range except {
		if hole, err := netip.ParsePrefix(text); err == nil {
			left := []netip.Prefix{}
			for _, block := range blocks {
				left = append(left, minus(block, hole.Masked())...)
			}
			blocks = left
		}
	}
	found := []string{}
	for _, block := range blocks {
		found = append(found, block.String())
	}
	return found
}

// minus halves a block until the hole is one of the halves.
func minus(block, hole netip.Prefix) []netip.Prefix {
	if !block.Overlaps(hole) {
		return []netip.Prefix{block}
	}
	if hole.Bits() <= block.Bits() {
		return nil
	}
	bytes := block.Addr().As4()
	bytes[block.Bits()/8] |= 1 << (7 - block.Bits()%8)
	low := netip.PrefixFrom(block.Addr(), block.Bits()+1)
	high := netip.PrefixFrom(netip.AddrFrom4(bytes), block.Bits()+1)
	return append(minus(low, hole), minus(high, hole)...)
}
