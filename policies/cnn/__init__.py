"""A convolutional policy, without attention: see `policies.cnn.policy`."""
