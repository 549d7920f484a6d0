"""Training algorithms: evolution strategies, cloning, implicit cloning, PPO, and shared code."""
