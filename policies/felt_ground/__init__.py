"""A policy that learns underfoot, within an episode, which ground holds."""
