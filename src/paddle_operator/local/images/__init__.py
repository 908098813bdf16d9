"""Images without a container engine: a Dockerfile becomes a cached environment and a layer of files."""
