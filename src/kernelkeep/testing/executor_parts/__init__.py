"""The parts of `ExecutorTests`, one question per file."""
