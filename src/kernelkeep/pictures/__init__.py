"""Pictures from plain data. Nothing here imports the layers whose results are drawn."""
