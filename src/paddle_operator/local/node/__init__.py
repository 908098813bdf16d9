"""The node of the local cluster: what a kubelet and a scheduler do, with processes for containers."""
