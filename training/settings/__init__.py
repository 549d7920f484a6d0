"""Settings from YAML and `--set`: read, merged, checked."""
