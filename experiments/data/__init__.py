"""Data of the experiments: from a local folder, or fetched once from their public homes."""
