"""Code that touches this machine: its checks, nodes, certificates, files, programs and the user's kubeconfig."""
