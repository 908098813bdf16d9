"""The node agent: runs the pods that are bound to this machine as processes, and reports their status."""
