"""Slow, obvious versions of what the library computes fast. Nothing here imports the library."""
