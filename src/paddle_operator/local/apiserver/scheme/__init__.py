"""The kinds that the API server knows: built-in ones and custom resources, their schemas and defaults."""
