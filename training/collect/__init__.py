"""The episode loop, and workers that run it in this process, in other processes or on Ray."""
