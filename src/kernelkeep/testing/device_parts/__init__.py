"""The parts of `DeviceTests`, one question per file."""
