"""The papers' learning experiments: small, rerunnable studies beside the published figures."""

import training  # noqa: F401 - first, as it answers Control-C
