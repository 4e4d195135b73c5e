"""Models and their beliefs."""
