"""The parts of `training.study`: configuration, jobs, results and page of a study."""
