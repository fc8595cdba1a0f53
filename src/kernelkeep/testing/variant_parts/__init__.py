"""The parts of `VariantTests`, one question per file."""
