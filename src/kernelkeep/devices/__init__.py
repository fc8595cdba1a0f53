"""WHERE it runs: one small base, one file for each backend, and the registry that finds them."""
