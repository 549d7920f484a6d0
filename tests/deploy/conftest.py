"""One exported folder for all tests: making it takes seconds."""

import pytest

from tests.deploy.folders import remembering, write


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Of a policy that carries two states; to be read alone."""
    made = tmp_path_factory.mktemp("exported")
    write(made, *remembering())
    return made
