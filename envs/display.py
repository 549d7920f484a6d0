"""Detection of a display."""

import os
import sys


def has_display() -> bool:
    """Whether a window can be opened here; PyBullet ends the process where it cannot."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY"))
