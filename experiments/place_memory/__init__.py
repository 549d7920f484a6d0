"""Studies of memories of places."""
