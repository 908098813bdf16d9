"""The local API server: objects in SQLite, served over HTTP as kube-apiserver serves them."""
