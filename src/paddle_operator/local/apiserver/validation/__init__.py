"""Validation of objects by the schemas and rules of their kinds."""
