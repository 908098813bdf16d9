"""The verbs on stored objects: create, update, delete, list, watch and the subresources."""
