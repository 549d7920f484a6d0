"""Policies measured: reward, success, intervals, FLOPs, latency and gaze."""
