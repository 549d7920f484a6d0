"""Trainers: evolution strategies, cloning, implicit cloning, PPO, and what they share."""
