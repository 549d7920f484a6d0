"""Episodes: one loop, and workers that run it in process, in processes or on Ray."""
