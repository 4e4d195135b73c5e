"""The named level: tasks, arms and metadata by name."""
