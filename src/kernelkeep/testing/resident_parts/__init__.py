"""The parts of `ResidentTests`."""
