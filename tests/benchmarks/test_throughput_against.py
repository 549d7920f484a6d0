"""Two checkouts in turn: the report, what is no checkout, and this checkout beside itself."""

import statistics

import pytest

from benchmarks import throughput_against


def test_report_has_medians_and_the_factor():
    figures = {
        "there": {"whole_ms": [60.0, 80.0, 70.0], "bare_physics_ms": [20.0, 20.0, 20.0]},
        "here": {"whole_ms": [40.0, 40.0, 35.0], "bare_physics_ms": [20.0, 20.0, 20.0]},
    }
    lines = throughput_against.report(figures).splitlines()
    assert lines[1].split() == ["there", "70.0", "20.0", "0.29"]
    assert lines[2].split() == ["here", "40.0", "20.0", "0.50"]
    assert lines[3].startswith("here is 2.00 times as fast (1.50 to 2.00,")


def test_a_folder_without_the_benchmark_is_one_sentence(tmp_path, capsys):
    assert throughput_against.main([str(tmp_path)]) == 2
    expected = f"error: DIR {tmp_path} is no checkout to time: it has no benchmarks/throughput.py\n"
    assert capsys.readouterr().err == expected


@pytest.mark.slow
def test_a_checkout_is_as_fast_as_itself():
    """Fails by chance only on a machine that is half as fast for whole walks of one process."""
    figures = throughput_against.measure(throughput_against.HERE, 6)
    pairs = zip(figures["there"]["whole_ms"], figures["here"]["whole_ms"], strict=True)
    assert statistics.median(a / b for a, b in pairs) == pytest.approx(1, abs=0.5)
