"""A camera with an address: motion JPEG over HTTP, as network cameras have it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import cv2
import numpy as np

__all__ = ["LEVELS", "NetworkCamera", "network_camera"]

LEVELS = 250
"""Pictures after which their grey begins anew."""


class NetworkCamera(ThreadingHTTPServer):
    """Sends a picture every so often, the n-th of grey n."""

    daemon_threads = True

    def __init__(self, period_s: float, pictures: int) -> None:
        super().__init__(("127.0.0.1", 0), _Stream)
        self.period_s, self.pictures, self.sent = period_s, pictures, 0

    @property
    def address(self) -> str:
        """What OpenCV opens."""
        return f"http://127.0.0.1:{self.server_port}/stream.mjpg"


class _Stream(BaseHTTPRequestHandler):
    server: NetworkCamera

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=picture")
        self.end_headers()
        try:
            for number in range(self.server.pictures):
                grey = np.full((40, 60, 3), number % LEVELS, np.uint8)
                told = cv2.imencode(".jpg", grey)[1].tobytes()
                head = f"--picture\r\nContent-Type: image/jpeg\r\nContent-Length: {len(told)}"
                self.wfile.write(head.encode() + b"\r\n\r\n" + told + b"\r\n")
                self.server.sent = number
                time.sleep(self.server.period_s)
        except OSError:
            return  # whoever looked has gone

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: pytest's output is of tests."""


@contextmanager
def network_camera(period_s: float = 0.02, pictures: int = 10**6) -> Iterator[NetworkCamera]:
    """A camera that is there for a while."""
    with NetworkCamera(period_s, pictures) as camera:
        thread = threading.Thread(target=camera.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield camera
        camera.shutdown()
        thread.join()
