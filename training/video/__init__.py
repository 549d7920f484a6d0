"""Policies seen: films, live windows and pictures of attention and memory."""
