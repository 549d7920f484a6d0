"""Workers on a Ray cluster that tolerates the loss of workers and nodes.

Ray itself restarts nothing here: another worker runs the task of a lost one
(`training.collect.pool.WorkerPool`), and a new worker starts when the cluster has a core for it.
"""

import logging
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from foveate_extras import require
from training.collect.pool import (
    RETRIES,
    Died,
    Event,
    R,
    T,
    Worker,
    WorkerDiedError,
    WorkerHandle,
    WorkerPool,
    answer,
    startup_error,
)  # fmt: skip
from training.command.errors import UserError

_MODULES = (
    *("attention", "policies", "envs", "training", "configs", "sim_assets"),
    "foveate_extras.py",
    "foveate_numba.py",
    "foveate_settings.py",
)
PATIENCE_S = 300.0
"""How long to wait while no worker lives."""
CLOSING_S = 5.0
"""How long workers may take to end their task and close before they are killed."""
_AUTH_MODE = "RAY_AUTH_MODE"
_HOW_TO_SECURE = (
    "make a token on one machine with `ray get-auth-token --generate`, give every machine the same "
    "~/.ray/auth_token, and start Ray on each with RAY_AUTH_MODE=token ray start ..."
)


class _Actor:
    """A worker on Ray."""

    def prepare(self, make: list[Any]) -> str:
        """Build the worker by a function whose reference is in the list; returns the node's id."""
        import ray

        try:
            self._worker = ray.get(make[0])()
        except ray.exceptions.RayError:
            raise
        except BaseException as error:
            raise startup_error(error) from None
        node: str = ray.get_runtime_context().get_node_id()
        return node

    def run(self, task: Any) -> Event:
        """Run a task."""
        return answer(self._worker.run, task)

    def close(self) -> None:
        """Close the worker, once its task is done."""
        self._worker.close()


class _Handle(WorkerHandle):
    """An actor, the reference of its current task, and its node."""

    def __init__(self, actor: Any, reference: Any) -> None:
        self.actor, self.reference = actor, reference
        self.node, self.lost = "", False
        self.closing: Any = None
        self.until_s = 0.0


class RayPool(WorkerPool[T, R, _Handle]):
    """Workers on a Ray cluster, one core each; those without a core wait for one."""

    def __init__(self, make: Callable[[], Worker[T, R]], workers: int, address: str) -> None:
        super().__init__()
        if address == "local":
            raise UserError(
                "ray_address = 'local' would start a Ray that listens on every network interface; "
                "on one machine, leave ray_address out and set workers"
            )
        require("ray_address", "cluster")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault(_AUTH_MODE, "token")
        import ray

        self._ray, self._workers, self._lost, self._started = ray, workers, 0, False
        self._alive_s, self._start_at_s = time.monotonic(), 0.0
        self._connected = not ray.is_initialized()
        if self._connected:
            # Ray reads the variable when it is imported, which may have happened before.
            ray._raylet.Config.initialize("")  # type: ignore[attr-defined]
            _connect(address, workers)
        self._actor_class: Any = ray.remote(num_cpus=1)(_Actor)
        self._make = [ray.put(make)]
        self.start_workers()

    def start_workers(self) -> None:
        now = time.monotonic()
        while len(self.handles) < self._workers and now >= self._start_at_s:
            actor = self._actor_class.remote()
            self.handles.append(_Handle(actor, actor.prepare.remote(self._make)))
        if any(handle.ready for handle in self.handles):
            self._alive_s = now
        elif now - self._alive_s > PATIENCE_S:
            raise WorkerDiedError(f"no Ray worker was available for {PATIENCE_S:.0f} s")

    def assign(self, handle: _Handle, task: T) -> None:
        handle.reference = handle.actor.run.remote(task)

    def events(self) -> Iterator[tuple[_Handle, Event]]:
        awaited = {h.reference: h for h in self.handles if not h.ready or h.index is not None}
        if not awaited:  # all are lost
            time.sleep(1.0)
            return
        for reference in self._ray.wait(list(awaited), timeout=1.0)[0]:
            handle = awaited[reference]
            yield handle, self._event(handle)

    def _event(self, handle: _Handle) -> Event:
        errors = self._ray.exceptions
        try:
            value = self._ray.get(handle.reference)
        except errors.RayTaskError as error:
            cause = error.cause
            if not isinstance(cause, errors.RayError):
                return None, cause
            handle.lost = True
            return None, Died(" ".join(str(cause).split())[:300], by_task=False)
        except errors.RayError as error:
            handle.lost = True
            by_task = bool(handle.node) and self._lives(handle.node)
            return None, Died(" ".join(str(error).split())[:300], by_task)
        if handle.ready:
            self._lost = 0
            event: Event = value
            return event
        self._started, handle.node = True, value
        return None, None

    def _lives(self, node: str) -> bool:
        """Whether a node is reachable; the cluster notices a lost one only after a while."""
        for each in self._ray.nodes():
            if each["NodeID"] == node and each["Alive"]:
                place = each["NodeManagerAddress"], each["NodeManagerPort"]
                with suppress(OSError), socket.create_connection(place, timeout=5):
                    return True
        return False

    def count_loss(self, reason: str) -> None:
        self._lost += 1
        left = sum(handle.ready for handle in self.handles)
        print(f"lost a Ray worker: {left} of {self._workers} are left", flush=True)
        if self._lost > max(RETRIES, self._workers) and not left:
            hint = ""
            if not self._started and os.environ[_AUTH_MODE].lower() == "token":
                # Nodes without a token cannot report an actor to its owner.
                hint = (
                    "; if the cluster asks for no token, anyone who reaches it can run code there: "
                    f"{_HOW_TO_SECURE}, or accept that with RAY_AUTH_MODE=disabled"
                )
            raise WorkerDiedError(f"{self._lost} Ray workers were lost ({reason}){hint}")
        self._start_at_s = time.monotonic() + min(60.0, 0.5 * 2**self._lost)

    def name_of(self, handle: _Handle) -> str:
        return f"on Ray's node {handle.node[:8]}" if handle.node else "on Ray"

    def ask_to_stop(self, handle: _Handle) -> None:
        if handle.ready and not handle.lost and handle.closing is None:
            handle.closing = handle.actor.close.remote()
            handle.until_s = time.monotonic() + CLOSING_S

    def stop_worker(self, handle: _Handle) -> None:
        self.ask_to_stop(handle)
        with suppress(self._ray.exceptions.RayError):
            if handle.closing is not None:
                left_s = max(0.0, handle.until_s - time.monotonic())
                self._ray.wait([handle.closing], timeout=left_s)
            self._ray.kill(handle.actor)

    def close(self) -> None:
        for handle in self.handles:
            self.ask_to_stop(handle)
        while self.handles:
            self.stop_worker(self.handles.pop())
        if self._connected:
            self._ray.shutdown()


def _connect(address: str, workers: int) -> None:
    import ray

    _check_reachable(address)
    root = Path(__file__).resolve().parents[2]
    runtime = {
        "env_vars": {"OMP_NUM_THREADS": "1"},
        "py_modules": [str(root / name) for name in _MODULES if (root / name).exists()],
    }
    before = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray announces its own future changes
            ray.init(address, runtime_env=runtime, log_to_driver=False, logging_level=logging.ERROR)
    except ray.exceptions.AuthenticationError:
        raise UserError(
            f"ray_address = {address!r}: this process has no token for the cluster (in "
            f"~/.ray/auth_token, or RAY_AUTH_TOKEN); {_HOW_TO_SECURE}"
        ) from None
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise UserError(
            f"cannot use Ray at ray_address = {address!r} (it must run, and its token must be that "
            f"of this process: {_HOW_TO_SECURE}): {' '.join(str(error).split())}"
        ) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray's would end the process as it is
    cores = int(ray.cluster_resources().get("CPU", 0))
    if cores < workers:
        print(f"Ray has {cores} cores for {workers} workers: the others wait for more", flush=True)


def _check_reachable(address: str) -> None:
    """Raises UserError at once where Ray would retry for minutes."""
    host, colon, port = address.partition("://")[2 if "://" in address else 0].rpartition(":")
    if not colon:  # "auto" and similar addresses
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise UserError(f"nothing answers at ray_address = {address!r}: {error}") from None
