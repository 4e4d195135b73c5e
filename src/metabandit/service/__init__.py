"""The decision service: one event log is the truth, and every belief is a function of it."""
