"""Readers: from a text to the tree, one file per language that users write."""
