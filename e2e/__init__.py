"""A short suite for whatever cluster KUBECONFIG points at: `make e2e`. See docs/en/e2e.md."""
