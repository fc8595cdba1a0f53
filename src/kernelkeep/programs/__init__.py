"""WHAT runs: sources, the headers they include, kernel signatures, and portable kernels."""
