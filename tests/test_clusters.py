"""Cluster recipes: valid shell scripts, valid command-line options, and a job that gives the same
results after it is stopped and requeued."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.training.test_es import SMALL
from training.algorithms.command import make_parser
from training.algorithms.es_config import ESConfig
from training.io import checkpoint

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "clusters"
SCRIPTS = sorted(FOLDER.glob("*.sh"))
PAGE = (ROOT / "docs" / "guide" / "clusters.md").read_text()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_shell_reads_each_script(path):
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", path], check=True)


def test_a_command_knows_the_words_of_the_page_and_of_the_scripts():
    texts = [PAGE, *(path.read_text() for path in FOLDER.iterdir())]
    joined = "\n".join(texts).replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if re.search(r"sbatch|--set|settings", line)]
    keys = {key for line in lines for key in re.findall(r"""(?<=[\s"'(])([a-z_]+)=""", line)}
    assert keys == {"popsize", "ray_address", "seed", "workers"}
    assert keys <= ESConfig.__dataclass_fields__.keys()
    used = set(re.findall(r"--(?:config|out|resume|set)\b", joined))
    known = {o for action in make_parser("es", "", "", "")._actions for o in action.option_strings}
    assert used == {"--config", "--out", "--resume", "--set"}
    assert used <= known
    for name in re.findall(r"(?:configs|examples)/[\w/]+\.\w+", joined):
        assert (ROOT / name).is_file(), name


def test_ray_knows_the_cluster_of_the_cloud():
    jsonschema = pytest.importorskip("jsonschema")
    ray = pytest.importorskip("ray", reason="Ray is not installed (extra cluster)")
    cluster = yaml.safe_load((FOLDER / "ray_aws.yaml").read_text())
    schema = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    jsonschema.validate(cluster, json.loads(schema.read_text()))
    assert cluster["head_node_type"] in cluster["available_node_types"]
    for command in (*cluster["head_start_ray_commands"], *cluster["worker_start_ray_commands"]):
        assert command == "ray stop" or "RAY_AUTH_MODE=token" in command


def tools(folder, **scripts):
    """Stubs of the SLURM programs that the scripts call, and this Python."""
    folder.mkdir()
    for name, text in {"python": f'exec {sys.executable} "$@"', **scripts}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


def newest(run):
    found = checkpoint.in_run(run)
    return found[-1].read_bytes() if found else b""


@pytest.mark.slow
@pytest.mark.parametrize("script", ["slurm.sh", "slurm_ray.sh"])
def test_a_job_that_is_taken_away_is_queued_again_and_comes_to_the_same(tmp_path, script):
    if script == "slurm_ray.sh":
        pytest.importorskip("ray", reason="Ray is not installed (extra cluster)")
    queued = tmp_path / "queued"
    folder = tools(
        tmp_path / "bin",
        srun='while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
        scontrol=f'if [ "$1" = show ]; then echo 127.0.0.1; else echo "$2" >> {queued}; fi',
        ray=f'exec {sys.executable} -c "from ray.scripts.scripts import main; main()" "$@"',
    )
    (tmp_path / "home").mkdir()
    config = tmp_path / "job.yaml"
    config.write_text(yaml.safe_dump({**SMALL, "iterations": 20, "checkpoints_kept": 2}))
    slurm = {"SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "3"}
    slurm |= {"SLURM_JOB_NODELIST": "here", "SLURM_JOB_NUM_NODES": "1", "TQDM_DISABLE": "1"}
    slurm |= {"HOME": str(tmp_path / "home"), "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    path = f"{folder}:{os.environ['PATH']}"
    environment = {**os.environ, **slurm, "PATH": path, "PYTHONPATH": str(ROOT)}
    words = ["bash", FOLDER / script, *(["es"] if script == "slurm.sh" else []), config]

    def begin(run):
        given = [*words, tmp_path / run, *(["seed=3"] if script == "slurm_ray.sh" else [])]
        return subprocess.Popen(given, env=environment, start_new_session=True)

    def end(job):
        job.wait()
        with suppress(ProcessLookupError):  # what is left of a job goes with it
            os.killpg(job.pid, signal.SIGKILL)

    suffix = "-s3" if script == "slurm.sh" else ""
    job, parts = begin("parts"), tmp_path / f"parts{suffix}"
    while len(checkpoint.in_run(parts)) < 3:
        assert job.poll() is None
        time.sleep(0.1)
    job.send_signal(signal.SIGTERM)
    end(job)
    assert job.returncode == 0
    assert queued.read_text() == "77\n"
    assert checkpoint.in_run(parts)[-1].stem < "000020"
    for run in ("parts", "whole"):
        job = begin(run)
        end(job)
        assert job.returncode == 0
    assert queued.read_text() == "77\n"
    whole = tmp_path / f"whole{suffix}"
    assert newest(parts) == newest(whole)
    assert "seed: 3\n" in (whole / "config.yaml").read_text()
