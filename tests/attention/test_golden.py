"""Reference values: closed forms to rtol 1e-10, estimates with fixed projections to 1e-12."""

from fnmatch import fnmatchcase

import pytest
from torch.testing import assert_close

from tests.attention.golden import CLOSED_FORMS, FIXED_PROJECTIONS, tensor

TABLE = {
    pattern: (computation, rtol)
    for table, rtol in ((CLOSED_FORMS, 1e-10), (FIXED_PROJECTIONS, 1e-12))
    for pattern, computation in table.items()
}


@pytest.mark.parametrize("pattern", TABLE)
def test_reference_values(golden, pattern):
    computation, rtol = TABLE[pattern]
    found = [entry for name, entry in golden.items() if fnmatchcase(name, pattern)]
    assert found
    for entry in found:
        assert_close(computation(entry), tensor(entry["value"]), rtol=rtol, atol=0)


def test_every_reference_value_is_computed_once(golden):
    for name in golden:
        assert sum(fnmatchcase(name, pattern) for pattern in TABLE) == 1, name
