"""The node agent: runs the pods that are bound to this host as processes, and reports their status."""
