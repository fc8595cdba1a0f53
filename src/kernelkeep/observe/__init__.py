"""Looking at what is here and what happened: diagnosis, measurements, reports."""
