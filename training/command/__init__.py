"""Command lines: arguments, signals, exit status, progress and error messages."""
