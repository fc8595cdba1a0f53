"""HTML from plain data: escaped elements, tables and charts as inline SVG. No dependency and no script; nothing here imports
the layers whose results are shown."""
