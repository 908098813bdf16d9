"""Fields, defaults, rules and CRDs of our kinds: the only place that knows the names of their fields."""
