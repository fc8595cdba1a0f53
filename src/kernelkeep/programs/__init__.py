"""WHAT runs: sources and the headers they include, languages, kernel signatures, and portable kernels."""
