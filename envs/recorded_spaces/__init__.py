"""The spaces of a dataset of demonstrations, without a simulator; see `env`."""

from envs.recorded_spaces.config import RecordedSpacesConfig

__all__ = ["RecordedSpacesConfig"]
