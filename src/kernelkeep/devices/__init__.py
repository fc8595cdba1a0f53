"""WHERE it runs: one small base, one folder for each backend, and the registry that finds them."""
