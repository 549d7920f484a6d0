"""An evaluation that is stopped goes on at the episode where it was."""

import pytest

from tests.training import walk_env
from tests.training.study_jobs import WALK, figures, write_study
from training import study
from training.studies.measures import Conditions, condition_file, unfinished

SEEDS = [100_000, 100_001, 100_002, 100_003, 100_004]


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


def stopped(folder, played):
    """An evaluation that was stopped in its fourth episode, and the file of its episodes."""
    folder.mkdir()
    conditions = Conditions(study.load_config(write_study(folder)), folder, "oracle", WALK, {})
    played.stop_at = SEEDS[3]
    with pytest.raises(KeyboardInterrupt):
        conditions.do()
    assert played == SEEDS[:3]
    assert not conditions.done()
    played.clear()
    played.stop_at = None
    return conditions, unfinished(condition_file(folder, "oracle"))


@pytest.fixture
def whole(tmp_path, played):
    """What an evaluation comes to that was not stopped."""
    (tmp_path / "whole").mkdir()
    settings = study.load_config(write_study(tmp_path / "whole"))
    Conditions(settings, tmp_path / "whole", "oracle", WALK, {}).do()
    assert played == SEEDS
    played.clear()
    return figures(tmp_path / "whole")


def test_it_goes_on(tmp_path, played, whole):
    conditions, file = stopped(tmp_path / "out", played)
    conditions.do()
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
    conditions.do()
    assert played == SEEDS[left:]
    assert figures(tmp_path / "out") == whole


def test_bytes_that_are_no_text(tmp_path, played, whole):
    conditions, file = stopped(tmp_path / "out", played)
    file.write_bytes(file.read_bytes()[:-9] + b"\xff\xfe")
    conditions.do()
    assert played == SEEDS[2:]
    assert figures(tmp_path / "out") == whole
