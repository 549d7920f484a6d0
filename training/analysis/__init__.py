"""Measurements of policies: reward, success, intervals, FLOPs, latency and gaze."""
