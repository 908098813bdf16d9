"""A small Kubernetes runtime that keeps client-go's contracts: client, cache, queue, election, events.

It knows nothing of Paddle, and it decodes only the fields that are read.
"""
