"""The benchmark of cloning's gradient steps: it runs, and leaves the size of the parts alone."""

from benchmarks import cloning_time
from training.algorithms import cloning


def test_figures(capsys):
    usual = cloning.PART
    assert cloning_time.main(["--batch", "16", "--rounds", "1"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [row[:22].strip() for row in table[1:]] == list(cloning_time.ARMS)
    assert all(float(cell) > 0 for row in table[1:] for cell in row[22:].split())
    assert usual == cloning.PART
