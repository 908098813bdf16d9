"""A short suite for the cluster of KUBECONFIG: `make e2e`. See docs/en/e2e.md."""
