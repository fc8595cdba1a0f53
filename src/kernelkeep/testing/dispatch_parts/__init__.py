"""The parts of `DispatchTests`, one question per file."""
