"""Where the API server is and how to log in to it: kubeconfig, credentials, proxy, TLS."""
