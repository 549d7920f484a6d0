"""Trials of the commands from outside: killed at random moments, and fed what is malformed."""
