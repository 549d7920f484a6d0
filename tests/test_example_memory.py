"""The example of the memory: linear attention agrees with exact attention."""

import re
import runpy
import sys
from pathlib import Path

import cv2

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "examples" / "remember_places.py"
PAGE = (ROOT / "examples" / "README.md").read_text()


def test_it_remembers_as_exact_attention_does(monkeypatch, capsys, tmp_path):
    picture = tmp_path / "remembered.png"
    monkeypatch.setattr(sys, "argv", [str(FILE), str(picture)])
    names = runpy.run_path(str(FILE))
    exact, linear, truth = names["exact"], names["linear"], names["truth"]
    assert 0.2 < truth.mean() < 0.4  # there are holes to tell
    assert (linear - exact).abs().max() < 0.02
    assert ((linear > 0.5) == (truth > 0.5)).float().mean() > 0.95
    assert names["kept"] == 2 * 53 + 3
    assert len(names["keys"]) == 240 * 48
    assert cv2.imread(str(picture)).std() > 10
    printed = capsys.readouterr().out
    assert re.findall(r"[\d,.]+(?= numbers)", printed) == ["34,560", "109"]
    assert f"```\n{printed}```\n" in PAGE


def test_it_imports_no_other_package_of_this_repository():
    found = re.findall(r"^\s*(?:import|from) (\w+)", FILE.read_text(), re.MULTILINE)
    assert "attention" in found
    assert not {"policies", "envs", "training", "gymnasium", "pybullet"} & set(found)
