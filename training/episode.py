"""The episode loop by its public name; `training.episodes.episode` has it."""

from training.episodes.episode import Episode, Policy, PolicyError, finite_numbers, run_episode

__all__ = ["Episode", "Policy", "PolicyError", "finite_numbers", "run_episode"]
