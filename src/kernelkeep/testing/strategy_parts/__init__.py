"""The parts of `StrategyTests`, by subject."""
