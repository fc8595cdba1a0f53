"""KEPT: programs in memory, on disk and (later) on the network, compiled once."""
