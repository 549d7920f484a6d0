"""What several tests begin from."""

import pytest
import yaml

from tests.training.study_jobs import conduct, write_study
from training.compare import model_files


@pytest.fixture(scope="session", autouse=True)
def few_timed_calls():
    """Studies time their policies with few calls: what a latency is does not matter here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_files, "TIMED_CALLS", 20)
        yield


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
