"""Whatever cannot be written: one sentence that names it, exit status 2, and going on later.

A file that may not grow beyond a size stands for a full disk: it needs no rights and no mount.
"""

import gc
import json
import os

import pytest
import yaml

from tests.helpers import refused
from tests.training.limits import files_of_at_most
from tests.training.study_jobs import conduct, figures, write_study
from training import bc, es, evaluate, flops, plots, rollout
from training.command.errors import UserError
from training.io import checkpoint, run_log

WALK = ["--env", "tests.training.walk_env:Walk-v0"]
REFUSED = "File too large"


def stopped(capsys, command, arguments, size):
    """Whether a command stopped for want of room, having said so properly; else it succeeded."""
    capsys.readouterr()
    with files_of_at_most(size):
        status = command(arguments)
    error = capsys.readouterr().err
    if status == 0:
        return False
    assert status == 2
    assert "Traceback" not in error
    last = error.splitlines()[-1]
    assert last.startswith("error: ")
    assert error.count("error: ") == 1
    assert REFUSED in last
    return True


def results(run):
    """Rows without times, and every tensor."""
    rows = [line.rpartition(",")[0] for line in (run / "metrics.csv").read_text().splitlines()]
    found = [checkpoint.load(path) for path in checkpoint.in_run(run)]
    return rows, [
        {name: tensor.tolist() for name, tensor in {**one.policy, **one.search}.items()}
        for one in found
    ]


def whole(folder):
    """No half-written file is left under a whole one's name, nor beside it."""
    left = [path.name for path in folder.rglob("*") if path.is_file()]
    assert not [name for name in left if name.startswith(".") and name != ".lock"], left
    for path in folder.rglob("*.safetensors"):
        assert path.parent.name == "data" or checkpoint.read(path)
    for path in folder.rglob("*.json"):
        json.loads(path.read_text())
    return left


ES = {
    "env_id": "tests.training.toy_env:Toy-v0", "env": {"episode_s": 0.15}, "iterations": 3,
    "popsize": 4, "terrains": 1, "center_terrains": 1, "workers": 1,
    "searcher": {"name": "pgpe", "sigma": 0.1},
}  # fmt: skip
BC = {
    "env_id": "tests.training.expert_env:Expert-v0", "iterations": 2, "expert_episodes": 2,
    "episodes": 2, "updates": 3, "batch_size": 8, "workers": 1, "held_out": 0.5,
    "policy": {"controller": "mlp", "hidden": [4], "patch": [8, 8]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("trainer", "config", "sizes"),
    [(es, ES, (0, 400, 3000)), (bc, BC, (0, 2000, 80_000))],
)
def test_a_run_stops_with_a_sentence_and_goes_on(tmp_path, capsys, trainer, config, sizes):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(config))
    begin = ["--config", str(path), "--out"]
    assert trainer.main([*begin, str(tmp_path / "undisturbed")]) == 0
    undisturbed = results(tmp_path / "undisturbed")
    reached = set()
    for size in sizes:
        run = tmp_path / f"run-{size}"
        if stopped(capsys, trainer.main, [*begin, str(run)], size):
            whole(run)
            reached.add("began" if (run / "config.yaml").exists() else "made")
            again = ["--resume"] if (run / "config.yaml").exists() else begin
            assert trainer.main([*again, str(run)]) == 0
        assert results(run) == undisturbed
    assert reached == {"made", "began"}


def test_a_row_that_cannot_be_written_is_a_sentence_and_written_later(tmp_path):
    def row(iteration):
        log.row({"iteration": iteration, "loss": 1 / 3}, "fine")

    log = run_log.RunLog(tmp_path, ("iteration", "loss"), iteration=0, total=2)
    row(1)
    size = (tmp_path / "metrics.csv").stat().st_size
    refused = pytest.raises(UserError, match=r"cannot write .*metrics\.csv: File too large")
    with files_of_at_most(size + 5), refused:
        row(2)
    log.close()
    log = run_log.RunLog(tmp_path, ("iteration", "loss"), iteration=1, total=2)
    row(2)
    log.close()
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 3


def test_an_evaluation_stops_with_a_sentence_and_goes_on(tmp_path, capsys):
    arguments = ["--policy", "oracle", "--policy", "blind", "--episodes", "2", *WALK, "--out"]
    for size in (0, 1000, 3000, 8000):
        out = str(tmp_path / f"evaluation-{size}")
        if stopped(capsys, evaluate.main, [*arguments, out], size):
            found = tmp_path / f"evaluation-{size}" / "evaluation.json"
            before = json.loads(found.read_text()) if found.exists() else []
            assert evaluate.main([*arguments, out]) == 0
            assert json.loads(found.read_text())[: len(before)] == before  # not measured again
        refused(capsys, evaluate, [*arguments, out], "holds another evaluation (evaluation.json)")


def test_another_evaluation_is_not_resumed(tmp_path, capsys):
    arguments = ["--policy", "blind", "--episodes", "2", *WALK, "--out", str(tmp_path)]
    assert evaluate.main(arguments) == 0
    (tmp_path / "pareto.png").unlink()
    for others, change in (
        (["--set", "wind=0.01"], "env_settings.wind = None, but here it is 0.01"),
        (["--episodes", "3"], "seeds = [100000, 100001], but here it is [100000, 100001, 100002]"),
    ):
        sentence = f"holds another evaluation (evaluation.json), of blind with {change}"
        refused(capsys, evaluate, [*arguments, *others], sentence)
    entry = json.loads((tmp_path / "evaluation.json").read_text())
    (tmp_path / "evaluation.json").write_text(json.dumps([{**entry[0], "reward_mean": "x"}]))
    damaged = "evaluation.json is damaged, or another kind of file: reward_mean = 'x', but"
    refused(capsys, evaluate, arguments, damaged)


# The pipe to an encoder that ended is closed by the garbage collector, which cannot flush it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("suffix", ["mp4", "gif", "webp"])
def test_a_video_that_cannot_be_written_is_a_sentence(tmp_path, capsys, suffix):
    out = tmp_path / f"film.{suffix}"
    out.write_bytes(b"an older one")
    arguments = ["--policy", "oracle", *WALK, "--video", str(out)]
    for size in (0, 1000):
        assert stopped(capsys, rollout.main, arguments, size)
        assert os.listdir(tmp_path) == [out.name]
        assert out.read_bytes() == b"an older one"
        gc.collect()
    assert rollout.main(arguments) == 0
    assert out.stat().st_size > 1000


def test_images_and_figures_that_cannot_be_written_are_a_sentence(tmp_path, capsys):
    (tmp_path / "metrics.csv").write_text("iteration,center_reward\n1,0.5\n2,0.7\n")
    words = ["--out", str(tmp_path / "curve.png")]
    assert stopped(capsys, plots.main, [str(tmp_path), *words], 1000)
    words = ["stepping_stones", "--calls", "1", "--json", str(tmp_path / "f")]
    assert stopped(capsys, flops.main, words, 500)
    assert sorted(os.listdir(tmp_path)) == ["metrics.csv"]


def test_a_study_stops_with_sentences_and_goes_on(plain, tmp_path, capsys):
    _, undisturbed = plain
    path = write_study(tmp_path)
    for size in (0, 3000):
        out = tmp_path / f"study-{size}"
        with files_of_at_most(size):
            assert conduct(path, out) == 2
        error = capsys.readouterr().err
        assert "Traceback" not in error
        assert REFUSED in error
        whole(out)
    assert conduct(path, out) == 0
    assert figures(out) == figures(undisturbed)
