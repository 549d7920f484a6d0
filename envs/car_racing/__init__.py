"""Gymnasium's CarRacing-v3 with action repeat, drawn fast; see `env`."""

from envs.car_racing.config import CarRacingConfig

__all__ = ["CarRacingConfig"]
