"""The attention benchmark on short sequences, and its measure of memory."""

import json
import math

import torch

from benchmarks import attention_speed
from benchmarks.live_memory import peak_bytes


def test_figures(tmp_path, capsys, monkeypatch):
    few = {name: attention_speed.ERROR_MAPS[name] for name in ("hyperbolic", "angular_hybrid")}
    monkeypatch.setattr(attention_speed, "ERROR_MAPS", few)
    words = ["--quick", "--lengths", "32", "64", "--threads", "1", "--out", str(tmp_path)]
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert attention_speed.main(words) == 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    results = json.loads((tmp_path / "attention_speed.json").read_text())["results"]
    for kind in ("bidirectional", "causal"):
        assert [row["length"] for row in results[kind]] == [32, 64]
        for row in results[kind]:
            assert set(attention_speed.OURS) <= set(row["ms"])
            assert min(row["ms"].values()) > 0
            # At the least the output: 8 heads x length x 64 numbers.
            assert min(row["peak_mib"].values()) >= 8 * row["length"] * 64 * 4 / 2**20
    assert set(results["parts"]) == set(attention_speed.OURS)
    assert all(0 < row["relative_error"] < math.inf for row in results["errors"])
    assert (tmp_path / "attention_speed.png").stat().st_size > 0
    assert "error against exact attention" in capsys.readouterr().out


def test_peak_bytes_counts_what_is_alive():
    given = torch.ones(1000)

    def compute():
        a = given + 1  # 4,000 bytes
        b = a.view(10, 100).mT * 2  # 8,000: the view is no memory of its own
        del a
        c = b[:, :5].contiguous()  # b, and 200
        del b
        return c + given.sum()  # 200, 4 and 200 beside nothing else

    assert peak_bytes(compute) == 8000
    assert peak_bytes(lambda: given.view(-1)) == 0


def test_a_bad_device_is_one_sentence(capsys):
    assert attention_speed.main(["--device", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith("error: device nowhere cannot be used here")
