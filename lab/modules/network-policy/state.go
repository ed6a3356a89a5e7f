package main

import (
	"encoding/json"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
)

// What of the cluster's objects decides who may talk to whom.
type meta struct {
	Namespace       string            `json:"namespace"`
	Name            string            `json:"name"`
	UID             string            `json:"uid"`
	Labels          map[string]string `json:"labels"`
	ResourceVersion string            `json:"resourceVersion"`
}

type object struct { // a pod, a namespace or a policy
	Metadata meta `json:"metadata"`
	Spec     spec `json:"spec"`
	Status   struct {
		Phase string `json:"phase"`
		PodIP string `json:"podIP"`
	} `json:"status"`
}

type spec struct {
	NodeName       string      `json:"nodeName"`
	HostNetwork    bool        `json:"hostNetwork"`
	Containers     []container `json:"containers"`
	InitContainers []container `json:"initContainers"`
	PodSelector    selector    `json:"podSelector"`
	PolicyTypes    []string    `json:"policyTypes"`
	Ingress        []rule      `json:"ingress"`
	Egress         []rule      `json:"egress"`
}

type container struct {
	RestartPolicy string `json:"restartPolicy"`
	Ports         []struct {
		Name     string `json:"name"`
		Number   int    `json:"containerPort"`
		Protocol string `json:"protocol"`
	} `json:"ports"`
}

type rule struct {
	From  []peer `json:"from"`
	To    []peer `json:"to"`
	Ports []port `json:"ports"`
}

type peer struct {
	Pods       *selector `json:"podSelector"`
	Namespaces *selector `json:"namespaceSelector"`
	Block      *struct {
		CIDR   string   `json:"cidr"`
		Except []string `json:"except"`
	} `json:"ipBlock"`
}

type port struct {
	Protocol string          `json:"protocol"`
	Port     json.RawMessage `json:"port"` // a number or a name
	End      int             `json:"endPort"`
}

type selector struct {
	Labels map[string]string `json:"matchLabels"`
	Terms  []struct {
		Key      string   `json:"key"`
		Operator string   `json:"operator"`
		Values   []string `json:"values"`
	} `json:"matchExpressions"`
}

// matches tells whether labels are selected; an empty selector selects all.
func (s *selector) matches(labels map[string]string) bool {
	for key, value := range s.Labels {
		if found, there := labels[key]; !there || found != value {
			return false
		}
	}
	for _, term := range s.Terms {
		value, there := labels[term.Key]
		listed := there && slices.Contains(term.Values, value)
		switch term.Operator {
		case "In":
			if !listed {
				return false
			}
		case "NotIn":
			if listed {
				return false
			}
		case "Exists":
			if !there {
				return false
			}
		default: // DoesNotExist
			if there {
				return false
			}
		}
	}
	return true
}

const podsPath = "/api/v1/pods"

// state is the cluster as this node knows it.
type state struct {
	lock     sync.Mutex
	kinds    map[string]map[string]object // path of the kind, then namespace/name
	starting map[string]start             // by the UID of a pod of this node
	changed  chan struct{}
}

// start is the address that the CNI gave a pod's sandbox: the API server learns it later. Closed once it has its rules.
type start struct {
	address string
	guarded chan struct{}
}

func newState() *state {
	kinds, starting := map[string]map[string]object{}, map[string]start{}
	return &state{kinds: kinds, starting: starting, changed: make(chan struct{}, 1)}
}

// begin makes a new pod's address known; the channel is closed once the table has its rules.
func (s *state) begin(uid, address string) <-chan struct{} {
	guarded := make(chan struct{})
	s.lock.Lock()
	s.starting[uid] = start{address, guarded}
	s.lock.Unlock()
	s.tell()
	return guarded
}

// release lets the pods start whose rules are in the table: addresses by UID.
func (s *state) release(pods map[string]string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for uid, address := range pods {
		if pod := s.starting[uid]; pod.guarded != nil && pod.address == address {
			close(pod.guarded)
			s.starting[uid] = start{address, nil}
		}
	}
}

// tell wakes the main loop, which need not be told twice.
func (s *state) tell() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *state) replace(kind string, items []object) {
	found := make(map[string]object, len(items))
	for _, item := range items {
		found[item.Metadata.Namespace+"/"+item.Metadata.Name] = item
	}
	s.lock.Lock()
	s.kinds[kind] = found
	if kind == podsPath {
		uids := map[string]bool{}
		for _, pod := range items {
			uids[pod.Metadata.UID] = true
		}
		maps.DeleteFunc(s.starting, func(uid string, _ start) bool { return !uids[uid] })
	}
	s.lock.Unlock()
	s.tell()
}

// set keeps a changed object. Most changes of a pod alter no rule: it has no address yet, or all that counts stays.
func (s *state) set(kind string, item object, gone bool) {
	key := item.Metadata.Namespace + "/" + item.Metadata.Name
	item.Metadata.ResourceVersion = ""
	s.lock.Lock()
	old := s.kinds[kind][key]
	same := !gone && reflect.DeepEqual(old, item)
	if kind == podsPath {
		_, before := s.address(old)
		_, after := s.address(item)
		same = same || !before && !after
	}
	if gone {
		delete(s.kinds[kind], key)
		delete(s.starting, item.Metadata.UID)
	} else {
		s.kinds[kind][key] = item
	}
	s.lock.Unlock()
	if !same {
		s.tell()
	}
}

// address gives a pod's own one, if it has one.
func (s *state) address(pod object) (string, bool) {
	text := pod.Status.PodIP
	if own, ok := s.starting[pod.Metadata.UID]; ok { // after a node's restart, the API server has the old one
		text = own.address
	}
	ended := pod.Status.Phase == "Succeeded" || pod.Status.Phase == "Failed"
	address, err := netip.ParseAddr(text)
	return text, !pod.Spec.HostNetwork && !ended && err == nil && address.Is4()
}

// reachable gives the pods that have an address of their own, on one node or ("") on all.
func (s *state) reachable(node string) map[string]object {
	pods := map[string]object{}
	for key, pod := range s.kinds[podsPath] {
		if node != "" && pod.Spec.NodeName != node {
			continue
		}
		if address, ok := s.address(pod); ok {
			pod.Status.PodIP = address
			pods[key] = pod
		}
	}
	return pods
}
