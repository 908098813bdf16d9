"""The tables that kubectl get prints."""
