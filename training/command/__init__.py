"""Command lines: arguments, signals, exit status, progress, and sentences for errors."""
