"""Engines driven to a certificate: what `--algorithm` names, and what stands above one engine."""
