"""Data of the experiments: from a local folder, or downloaded once from their public URLs."""
