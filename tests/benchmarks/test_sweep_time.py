"""The sweep's benchmark in its quick form: parts add up, and nothing stays replaced."""

import json

from benchmarks import sweep_time

PICTURES = {"drawing what moves", "copying the background", "drawing the background"}
"""Parts that take no time without pictures."""


def functions():
    return [
        getattr(owner, name)
        for parts in (sweep_time.STEP_PARTS, sweep_time.RESET_PARTS)
        for pairs in parts.values()
        for owner, name in pairs
    ]


def test_figures(tmp_path, capsys):
    before = functions()
    assert sweep_time.main(["--quick", "--seed", "3", "--out", str(tmp_path)]) == 0
    assert functions() == before
    results = json.loads((tmp_path / "sweep_time.json").read_text())["results"]
    for name in sweep_time.COLUMNS:
        found = results[name]
        assert min(found["step_ms"], found["reset_ms"], found["expert_ms_mean"]) > 0
        for whole in ("step", "reset"):  # else other calls were timed
            assert 0.25 < sum(found[f"{whole}_ms_parts"].values()) / found[f"{whole}_ms"] < 4
        parts = {**found["step_ms_parts"], **found["reset_ms_parts"]}
        idle = {part for part, ms in parts.items() if ms == 0}
        assert idle == (PICTURES if name == "no pictures" else set())
    assert (tmp_path / "sweep_time.png").stat().st_size > 1000
    assert "inverse kinematics" in capsys.readouterr().out


def test_an_unwritable_folder_is_one_sentence(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    real = sweep_time.times_of
    monkeypatch.setattr(sweep_time, "times_of", lambda env, seed, *_: real(env, seed, 2, 1))
    blind = list(sweep_time.COLUMNS)[-1]
    monkeypatch.setattr(sweep_time, "COLUMNS", {blind: sweep_time.COLUMNS[blind]})
    assert sweep_time.main(["--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith(f"error: --out {tmp_path / 'file'} cannot be written")
