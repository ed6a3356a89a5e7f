"""Whether a job would start, and why one does not: arithmetic on a copy of the cluster's state. Asks no cluster."""
