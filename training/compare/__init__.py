"""The parts of `training.study`: what a study is, makes, measures and shows."""
