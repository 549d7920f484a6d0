"""Text Transformers on ListOps."""
