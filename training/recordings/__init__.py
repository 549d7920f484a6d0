"""Former import paths, which keep working."""
