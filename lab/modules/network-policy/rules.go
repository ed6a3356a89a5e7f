package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Who opened a connection to whom decides, not who sent a packet: the kernel tracks connections, and every packet of one
// is judged by the rules of now, in both directions. What is allowed returns to the chain that asked, and is asked by the
// next pod's chain; what nothing allows is dropped. A packet of no connection could be matched by none of this.
const head = `*security
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -i cni0 -m conntrack --ctstate INVALID,UNTRACKED -j DROP
-A FORWARD -m conntrack --ctstate INVALID,UNTRACKED -j DROP
`

const (
	opener = " --ctorigsrc "
	server = " --ctreplsrc " // behind a Service, the pod
)

// rules writes the table for a node's pods, and the addresses of these pods by UID; not before every kind has been listed.
func (s *state) rules(node string) (string, map[string]string, bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if len(s.kinds) < 3 {
		return "", nil, false
	}
	pods, policies := s.reachable(node), s.kinds["/apis/networking.k8s.io/v1/networkpolicies"]
	everywhere := sync.OnceValue(func() map[string]object { return s.reachable("") }) // a node without guarded pods needs none
	addresses := map[string]string{}
	var chains, out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(pods)) {
		pod := pods[key]
		address := pod.Status.PodIP
		addresses[pod.Metadata.UID] = address
		for _, way := range []string{"Ingress", "Egress"} {
			allowed, guarded := []string{}, false
			for _, name := range slices.Sorted(maps.Keys(policies)) {
				policy := policies[name]
				same := policy.Metadata.Namespace == pod.Metadata.Namespace
				if same && slices.Contains(policy.Spec.PolicyTypes, way) && policy.Spec.PodSelector.matches(pod.Metadata.Labels) {
					guarded = true
					allowed = append(allowed, s.allowed(everywhere(), policy, pod, way)...)
				}
			}
			if !guarded {
				continue
			}
			chain := way + "-" + address
			fmt.Fprintf(&chains, ":%s - [0:0]\n", chain)
			if way == "Ingress" {
				fmt.Fprintf(&out, "-A FORWARD -m conntrack%s%s -j %s\n", server, address, chain)
				allowed = append(allowed, opener+address) // a pod may always reach itself, through a Service too
			} else {
				for _, hook := range []string{"FORWARD", "INPUT"} {
					fmt.Fprintf(&out, "-A %s -m conntrack%s%s -j %s\n", hook, opener, address, chain)
				}
				allowed = append(allowed, server+address)
			}
			slices.Sort(allowed)
			for _, match := range slices.Compact(allowed) {
				if match != "" {
					match = " -m conntrack" + match
				}
				fmt.Fprintf(&out, "-A %s%s -j RETURN\n", chain, match)
			}
			fmt.Fprintf(&out, "-A %s -j DROP\n", chain)
		}
	}
	first, rest, _ := strings.Cut(head, "-A INPUT")
	return first + chains.String() + "-A INPUT" + rest + out.String() + "COMMIT\n", addresses, true
}

// allowed gives the matches of all that a policy lets in or out of one pod.
func (s *state) allowed(pods map[string]object, policy, pod object, way string) []string {
	rules, side := policy.Spec.Ingress, opener
	if way == "Egress" {
		rules, side = policy.Spec.Egress, server
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
			for _, other := range s.selected(pods, peer, policy.Metadata.Namespace) {
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
func (s *state) selected(pods map[string]object, peer peer, namespace string) []object {
	found := []object{}
	for _, pod := range pods {
		space := s.kinds["/api/v1/namespaces"]["/"+pod.Metadata.Namespace]
		there := pod.Metadata.Namespace == namespace
		if peer.Namespaces != nil {
			there = peer.Namespaces.matches(space.Metadata.Labels)
		}
		if there && (peer.Pods == nil || peer.Pods.matches(pod.Metadata.Labels)) {
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
		line := side + " --ctproto " + protocol
		text := strings.Trim(string(port.Port), `"`)
		number, err := strconv.Atoi(text)
		switch {
		case text == "" || text == "null":
			found = append(found, line)
		case err == nil && port.End > number:
			found = append(found, fmt.Sprintf("%s --ctreplsrcport %d:%d", line, number, port.End))
		case err == nil:
			found = append(found, fmt.Sprintf("%s --ctreplsrcport %d", line, number))
		case target != nil:
			for _, container := range target.Spec.serving() {
				for _, named := range container.Ports {
					if named.Name == text && strings.ToLower(named.Protocol) == protocol {
						found = append(found, fmt.Sprintf("%s --ctreplsrcport %d", line, named.Number))
					}
				}
			}
		}
	}
	return found
}

// serving gives the containers that run as long as the pod, sidecars among them.
func (s *spec) serving() []container {
	ended := func(init container) bool { return init.RestartPolicy != "Always" }
	return append(slices.DeleteFunc(slices.Clone(s.InitContainers), ended), s.Containers...)
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
