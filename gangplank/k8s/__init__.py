"""What Kubernetes itself defines; pure, and without any notion of a job."""
