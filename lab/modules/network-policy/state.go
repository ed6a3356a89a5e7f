package main

import (
	"encoding/json"
	"slices"
	"sync"
)

// What of the cluster's objects decides who may talk to whom.
type meta struct {
	Namespace       string            `json:"namespace"`
	Name            string            `json:"name"`
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
	NodeName    string `json:"nodeName"`
	HostNetwork bool   `json:"hostNetwork"`
	Containers  []struct {
		Ports []struct {
			Name     string `json:"name"`
			Number   int    `json:"containerPort"`
			Protocol string `json:"protocol"`
		} `json:"ports"`
	} `json:"containers"`
	PodSelector selector `json:"podSelector"`
	PolicyTypes []string `json:"policyTypes"`
	Ingress     []rule   `json:"ingress"`
	Egress      []rule   `json:"egress"`
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

// state is the cluster as this node knows it.
type state struct {
	lock    sync.Mutex
	kinds   map[string]map[string]object // path of the kind, then namespace/name
	changed chan struct{}
}

func newState() *state {
	return &state{kinds: map[string]map[string]object{}, changed: make(chan struct{}, 1)}
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
	s.lock.Unlock()
	s.tell()
}

func (s *state) set(kind string, item object, gone bool) {
	key := item.Metadata.Namespace + "/" + item.Metadata.Name
	s.lock.Lock()
	if gone {
		delete(s.kinds[kind], key)
	} else {
		s.kinds[kind][key] = item
	}
	s.lock.Unlock()
	s.tell()
}
