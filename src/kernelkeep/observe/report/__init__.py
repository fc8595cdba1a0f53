"""The report of a cache folder: what is cached, what was done, and how it went, as data and as one HTML file."""
