"""Films and images of the tests, read back."""

from pathlib import Path

import cv2
import numpy as np


def frames_of(path: Path) -> np.ndarray:
    """Every frame, (frames, height, width, 3) uint8, red first."""
    film, found = cv2.VideoCapture(str(path)), []
    while True:
        there, frame = film.read()
        if not there:
            return np.stack(found)
        found.append(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB))


def picture_of(path: Path) -> np.ndarray:
    """A still, (height, width, 3) uint8, red first."""
    return cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
