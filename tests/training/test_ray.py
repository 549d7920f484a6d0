"""Training on a Ray cluster that loses workers and a node, and how it is entered."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.helpers import same_results, train
from tests.training.background import ROOT, start, wait_for
from tests.training.test_es import SMALL as SMALL
from tests.training.test_es import at
from training import es
from training.io import checkpoint

pytest.importorskip("ray", reason="Ray is not installed (extra cluster)")
SECRET = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
OPEN = {"RAY_AUTH_MODE": "disabled"}


@contextmanager
def cluster(auth, *cores):
    """Address of a cluster, and the processes of its nodes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.training.ray_cluster", *map(str, cores)],
        cwd=ROOT, env=os.environ | LOOPBACK | auth | {"PYTHONPATH": str(ROOT)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        found = json.loads(process.stdout.readline())
        yield found["address"], found["raylets"]
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@pytest.fixture(scope="module")
def nodes():
    """A cluster with two nodes of two cores, which requires a token."""
    with cluster(SECRET, 2, 2) as found:
        yield found


def begin(job, run, address, *more, **auth):
    arguments = ["--config", job, "--out", str(run), "--set", f"ray_address={address}", *more]
    # Ray turns 127.0.0.1 into another address of this machine where it may form clusters.
    return start("training.es", arguments, env=os.environ | LOOPBACK | auth)


def listening():
    """Local addresses, in hexadecimal, of all listening sockets, by process."""
    sockets = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                sockets[f"socket:[{words[9]}]"] = words[1].partition(":")[0]
    return sockets


@pytest.mark.slow
def test_it_binds_to_the_loopback_interface_alone(nodes):
    sockets, found = listening(), set()
    for pid in nodes[1]:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # it was closed meanwhile
                found.add(sockets.get(os.readlink(f"/proc/{pid}/fd/{name}")))
    found.discard(None)
    assert found
    assert found <= {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(job, tmp_path, nodes):
    one = train(es, job(), tmp_path / "one")
    env = {"episode_s": 0.15, "die_once": str(tmp_path / "died")}
    process = begin(job(env=env), tmp_path / "two", nodes[0], "workers=2", **SECRET)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0, printed
    assert (tmp_path / "died").exists()
    same_results(one, tmp_path / "two")


@pytest.mark.slow
def test_an_episode_that_kills_its_workers_is_named(job, tmp_path, nodes):
    env = {"episode_s": 0.15, "deadly": True}
    process = begin(job(env=env), tmp_path / "run", nodes[0], "workers=1", **SECRET)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "error: training stopped: a worker process died (" in printed
    assert "), 4 times over the episode with seed " in printed
    assert "Traceback" not in printed


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_one_line(job, tmp_path, nodes, how):
    run = tmp_path / "run"
    process = begin(job(iterations=100_000), run, nodes[0], "workers=2", **SECRET)
    wait_for(lambda: len(checkpoint.in_run(run)) > 1, process)
    process.send_signal(how)
    printed, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + how
    assert printed.rstrip().endswith(f"--resume {run}")
    assert "retries" not in printed
    assert "Traceback" not in printed


@pytest.mark.slow
def test_a_token_is_asked_for(job, tmp_path, nodes):
    none = {"HOME": str(tmp_path)}
    process = begin(job(), tmp_path / "run", nodes[0], **none)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "this process has no token for the cluster" in printed
    assert "ray get-auth-token --generate" in printed


@pytest.mark.slow
def test_a_cluster_that_asks_for_no_token_is_refused(job, tmp_path):
    with cluster(OPEN, 1) as (address, _):
        process = begin(job(), tmp_path / "run", address, **SECRET)
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "if the cluster asks for no token, anyone who reaches it can run code" in printed
        run = tmp_path / "accepted"
        process = begin(job(iterations=1), run, address, **OPEN)
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0, printed


CLOSES = """
from functools import partial
from tests.training.pool_workers import Holding
from training.collect.ray_pool import RayPool

pool = RayPool(partial(Holding, {folder!r}), 1, {address!r})
pool.run([None, None])
pool.close()
"""


@pytest.mark.slow
def test_workers_close_when_training_ends(tmp_path, nodes):
    (tmp_path / "begun").touch()
    code = CLOSES.format(folder=str(tmp_path), address=nodes[0])
    environment = os.environ | LOOPBACK | SECRET | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, timeout=120)
    assert len(list(tmp_path.glob("closed *"))) == 1


@pytest.mark.slow
def test_a_lost_node_changes_nothing(job, tmp_path, nodes):
    """Last here: one of the two nodes is gone afterwards, and two of four workers wait."""
    path = job(iterations=60)
    whole = train(es, path, tmp_path / "whole")
    run = tmp_path / "run"
    process = begin(path, run, nodes[0], "workers=4", "env.busy_s=0.01", **SECRET)
    wait_for(lambda: at(run) >= 5, process)
    os.kill(nodes[1][0], signal.SIGKILL)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0, printed
    assert "Traceback" not in printed
    same_results(whole, run)
