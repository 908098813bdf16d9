"""The local cluster put together: API server, node and operator in one process, and where it keeps its state."""
