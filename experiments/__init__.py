"""The papers' learning experiments and figures beside the published results."""

import os

import training  # noqa: F401 - first, as it answers Control-C

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: small computations, one core
