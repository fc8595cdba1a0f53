"""From a state program to kernels: the forms, their text, and the functions that the text calls."""
