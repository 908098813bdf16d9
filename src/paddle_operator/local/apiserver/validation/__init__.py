"""Checks objects against the schemas and rules of their kinds."""
