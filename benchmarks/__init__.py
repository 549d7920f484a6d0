"""Commands that print measured figures, and write them with hardware and seeds."""

import training  # noqa: F401 - first, as it answers Control-C
