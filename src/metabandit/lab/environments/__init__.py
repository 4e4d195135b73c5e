"""Environments. A new one is one file; none of them imports a policy."""
