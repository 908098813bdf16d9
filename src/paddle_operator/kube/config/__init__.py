"""How to reach the API server and authenticate: kubeconfig, credentials, proxy, TLS."""
