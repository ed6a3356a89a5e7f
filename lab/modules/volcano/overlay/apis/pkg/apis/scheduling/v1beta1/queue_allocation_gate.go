package v1beta1

// QueueAllocationGateKey is the one name that Volcano 1.15 uses and volcano.sh/apis v1.14.0, its newest module, lacks.
const QueueAllocationGateKey = GroupName + "/queue-allocation-gate"
