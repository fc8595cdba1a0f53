"""The parts of `CacheTests`, one file per question."""
