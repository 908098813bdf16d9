"""What Python users import: read manifests, submit jobs, watch them."""
