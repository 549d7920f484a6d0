"""A study that is interrupted or killed goes on where it was, at the episode of an evaluation."""

import shutil

import pytest

from tests.training import walk_env
from tests.training.study_jobs import WALK, checkpoints, conduct, figures, write_study
from training import study
from training.compare.evaluations import EvaluationJob, evaluation_file, unfinished
from training.compare.jobs import MISSING

SEEDS = [100_000, 100_001, 100_002, 100_003, 100_004]


def test_only_its_own_left_overs_are_removed(plain, tmp_path):
    path, whole = plain
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    (out / "evaluations" / "oracle.json").unlink()
    own = [
        ".study.yaml.12", ".report.html.3", "evaluations/.exact-s0.json.77",
        "evaluations/.exact-s0.jsonl.7", "evaluations/exact-s0.jsonl",
    ]  # fmt: skip
    others = [
        ".notes.tar.gz", ".report.html.old", "evaluations/.mine.json.bak", "evaluations/mine.jsonl",
    ]  # fmt: skip
    for name in own + others:
        (out / name).write_text("")
    (out / "runs" / "exact-s0" / "checkpoints" / "best.safetensors").write_text("")
    assert conduct(path, out) == 0
    assert [name for name in own + others if (out / name).exists()] == others


def test_control_c_says_how_to_resume(tmp_path, monkeypatch, capsys):
    def interrupt(job):
        raise KeyboardInterrupt

    monkeypatch.setattr(EvaluationJob, "execute", interrupt)
    path, out = write_study(tmp_path), tmp_path / "out"
    assert conduct(path, out) == 130
    printed = capsys.readouterr().out
    assert f"resume with: python -m training.study --config {path} --out {out}" in printed
    assert "The study is not finished" in (out / "report.html").read_text()


def test_a_run_killed_before_its_first_file(tmp_path, plain):
    _, whole = plain
    out = tmp_path / "out"
    (out / "runs" / "exact-s0" / "checkpoints").mkdir(parents=True)
    path = write_study(tmp_path)
    (out / "study.yaml").write_bytes((whole / "study.yaml").read_bytes())
    assert conduct(path, out) == 0
    assert checkpoints(out) == checkpoints(whole)


@pytest.fixture
def played(monkeypatch):
    """Seeds of the episodes that are begun; the one whose seed is set as `stop_at` stops all."""
    reset = walk_env.WalkEnv.reset

    class Played(list):
        stop_at = None

    seeds = Played()

    def begin(self, *, seed=None, options=None):
        if seed == seeds.stop_at:
            raise KeyboardInterrupt
        seeds.append(seed)
        return reset(self, seed=seed, options=options)

    monkeypatch.setattr(walk_env.WalkEnv, "reset", begin)
    return seeds


def evaluation(folder):
    """That of the oracle in a new folder."""
    folder.mkdir()
    return EvaluationJob(study.load_config(write_study(folder)), folder, "oracle", WALK, {})


def stopped(folder, played):
    """An evaluation that was stopped in its fourth episode, and the file of its episodes."""
    conditions = evaluation(folder)
    played.stop_at = SEEDS[3]
    with pytest.raises(KeyboardInterrupt):
        conditions.execute()
    assert played == SEEDS[:3]
    assert conditions.status() == MISSING
    played.clear()
    played.stop_at = None
    return conditions, unfinished(evaluation_file(folder, "oracle"))


@pytest.fixture
def whole(tmp_path, played):
    """What an evaluation comes to that was not stopped."""
    evaluation(tmp_path / "whole").execute()
    assert played == SEEDS
    played.clear()
    return figures(tmp_path / "whole")


def test_it_goes_on(tmp_path, played, whole):
    conditions, file = stopped(tmp_path / "out", played)
    conditions.execute()
    assert played == SEEDS[3:]
    assert figures(tmp_path / "out") == whole
    assert not file.exists()


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        (lambda text: text[:-20], 2),  # killed while it wrote
        (lambda text: text[:-1], 3),
        (lambda text: text.replace('"seed": 100001', '"seed": 7'), 1),
        (lambda text: text.replace('"steps"', '"paces"'), 0),
        (lambda text: text.replace('"env": {}', '"env": {"wind": 0.5}'), 0),  # other settings
        (lambda text: "\0" + text, 0),
        (lambda text: "", 0),
    ],
)
def test_what_is_no_episode_of_it_is_played_again(tmp_path, played, whole, damage, left):
    conditions, file = stopped(tmp_path / "out", played)
    text = file.read_text()
    assert text != damage(text)
    file.write_text(damage(text))
    conditions.execute()
    assert played == SEEDS[left:]
    assert figures(tmp_path / "out") == whole
