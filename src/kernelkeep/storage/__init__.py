"""Files: read with care, replaced in one step, locked between processes. The layers above write files through here."""
