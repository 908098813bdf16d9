"""A container as a process, without root: namespaces where the kernel allows them."""
