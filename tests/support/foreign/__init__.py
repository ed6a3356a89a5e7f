"""A cluster that the project did not make: kubeadm's, on this machine, for molecule `foreign`."""
