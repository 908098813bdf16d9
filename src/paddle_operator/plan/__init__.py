"""Decides, and does nothing else: no client, no clock, no randomness. Facts come in, a Plan goes out."""
