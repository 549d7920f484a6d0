"""A network camera: motion JPEG over HTTP."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import cv2
import numpy as np

__all__ = ["NetworkCamera", "network_camera"]


class NetworkCamera(ThreadingHTTPServer):
    """Server that sends frames on request; the n-th frame has grey value n."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Stream)
        self.told = threading.Semaphore(0)
        self.over = False

    @property
    def address(self) -> str:
        """Address for OpenCV."""
        return f"http://127.0.0.1:{self.server_port}/stream.mjpg"

    def send(self, pictures: int) -> None:
        """Send more frames, up to 256 in total."""
        self.told.release(pictures)

    def end(self) -> None:
        """Stop sending."""
        self.over = True
        self.told.release()


class _Stream(BaseHTTPRequestHandler):
    server: NetworkCamera

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=picture")
        self.end_headers()
        for number in range(256):
            self.server.told.acquire()
            if self.server.over:
                return
            told = cv2.imencode(".jpg", np.full((40, 60, 3), number, np.uint8))[1].tobytes()
            head = f"--picture\r\nContent-Type: image/jpeg\r\nContent-Length: {len(told)}"
            self.wfile.write(head.encode() + b"\r\n\r\n" + told + b"\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""


@contextmanager
def network_camera() -> Iterator[NetworkCamera]:
    """Context manager that runs a network camera."""
    with NetworkCamera() as camera:
        thread = threading.Thread(target=camera.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield camera
        camera.shutdown()
        thread.join()
