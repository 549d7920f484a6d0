"""The command that chooses widths for the study of memories, quick."""

import json

from experiments.place_memory import place_memory_width

ARM = "linear harmonic F = 11"


def test_losses_are_of_the_widths(tmp_path, capsys):
    words = ["--quick", "--walks", "2", "--updates", "6", "--out", str(tmp_path), "--arms", ARM]
    assert place_memory_width.main(words) == 0
    (row,) = json.loads((tmp_path / "place_memory_width.json").read_text())["results"]
    assert row["arm"] == ARM
    assert len(set(row["losses"])) == len(row["widths_m"]) == 3
    assert row["chosen_m"] in row["widths_m"]
    capsys.readouterr()
    assert place_memory_width.main(["--arms", "no memory"]) == 2
    assert "--arms must be of linear harmonic F = 53, " in capsys.readouterr().err


def test_the_widest_that_is_as_good_is_chosen():
    assert place_memory_width.chosen((0.02, 0.03, 0.04), (0.800, 0.807, 0.820)) == 0.03
    assert place_memory_width.chosen((0.02, 0.03, 0.04), (0.900, 0.850, 0.800)) == 0.04
