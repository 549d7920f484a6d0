"""Videos, live windows and images of attention and memory."""
