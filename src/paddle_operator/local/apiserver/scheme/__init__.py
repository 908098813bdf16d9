"""The kinds that the API server serves: built-in ones and custom resources, their schemas and defaults."""
