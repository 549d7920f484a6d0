"""Language models, and random features in place of their softmax over all words."""
