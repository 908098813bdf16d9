"""A Kubernetes for one machine: an API server with a closed list of kinds, and a node that runs pods as processes."""
