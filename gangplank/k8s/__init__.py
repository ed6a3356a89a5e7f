"""What Kubernetes itself defines; pure, knows no job."""
