"""Fixtures of several tests."""

from functools import partial

import pytest
import yaml
from markupsafe import Markup

from tests.training.study_jobs import DRAWN, conduct, write_study
from training.analysis import evaluator, step_cost
from training.compare import model_files, page


def no_figure(shown, title, *labels, **more):
    """A figure in which nothing is drawn."""
    return Markup('<svg role="img" aria-label="{}"></svg>').format(title)


@pytest.fixture(scope="session", autouse=True)
def light_studies():
    """Studies time their policies with few calls, as what a latency is does not matter here, and
    draw nothing, but where a module asks for figures (`study_jobs.with_figures`)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_files, "TIMED_CALLS", 20)
        for name in DRAWN:
            patch.setattr(page, name, no_figure)
        patch.setattr(page, "draw_picture", lambda *given: b"\x89PNG")
        yield


@pytest.fixture
def few_timed_calls(monkeypatch):
    """Evaluations time their policies with few calls."""
    monkeypatch.setattr(evaluator, "measure", partial(step_cost.measure, calls=3, warm_up=1))


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    """A finished study of one stage without curves, in an environment that cannot be filmed."""
    folder = tmp_path_factory.mktemp("plain")
    path = write_study(folder)
    assert conduct(path, folder / "out") == 0
    return path, folder / "out"


@pytest.fixture
def job(tmp_path, request):
    """Writes the configuration `SMALL` of the test's module, with changes, and returns its path."""

    def write(**changes):
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(request.module.SMALL | changes))
        return str(path)

    return write
