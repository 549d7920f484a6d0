"""One exported folder for all tests, since the export takes seconds."""

import pytest

from tests.deploy.folders import remembering, write


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Read-only folder of a policy with two recurrent states."""
    made = tmp_path_factory.mktemp("exported")
    write(made, *remembering())
    return made
