"""Image Transformers on Fashion-MNIST."""
