"""Runs PaddlePaddle training from one YAML, on a laptop and on Kubernetes."""

__version__ = "0.1.0.dev0"
