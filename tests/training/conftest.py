"""What several tests of studies begin from."""

import pytest

from tests.training.study_jobs import conduct, write_study


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    """A finished study of one stage without curves, in an environment that cannot be filmed."""
    folder = tmp_path_factory.mktemp("plain")
    path = write_study(folder)
    assert conduct(path, folder / "out") == 0
    return path, folder / "out"
