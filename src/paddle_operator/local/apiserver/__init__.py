"""The embedded API server: objects in SQLite, served over HTTP as a kube-apiserver serves them."""
