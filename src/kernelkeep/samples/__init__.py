"""Small programs with NumPy references, for demos, examples, benchmarks and tests. They are not tuned."""
