"""A study's record: few files that hold the same results."""

import csv
import gzip
import io
import json

import pytest

from tests.training.published import ROOT, STUDIES, needs_studies, unpacked
from training import study
from training.config import UserError
from training.studies.record import EPISODES, FACTS, ITERATIONS, pack, unpack

CONFIG = ROOT / "configs" / "studies" / "car_racing.yaml"


def table(path):
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def small(out, rewards=(0.1 + 0.2, -1e-17)):
    """A study's directory with one run and one evaluation."""
    files = {
        "study.yaml": "title: small\n",
        "runs/an-arm-s0/config.yaml": "seed: 0\n",
        "runs/an-arm-s0/metrics.csv": "iteration,loss\n1,0.30000000000000004\n2,nan\n",
        "gaze/an-arm-s0.json": '{"views": 3}\n',
    }
    records = [
        {"fell": bool(i), "seed": 100_000 + i, "reward": reward, "success": 1.0}
        for i, reward in enumerate(rewards)
    ]
    entry = {"name": "an-arm-s0", "seeds": [r["seed"] for r in records], "records": records}
    files["evaluations/an-arm-s0.json"] = json.dumps(entry, indent=1) + "\n"
    for name, text in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)
    return files


def test_the_same_files_come_back(tmp_path):
    files = small(tmp_path / "out")
    pack(tmp_path / "out", tmp_path / "record", {"an-arm-s0": {"arm": "an arm", "seed_of": 0}})
    unpack(tmp_path / "record", tmp_path / "back")
    back = {
        path.relative_to(tmp_path / "back").as_posix(): path.read_text()
        for path in (tmp_path / "back").rglob("*")
        if path.is_file()
    }
    assert back == files
    first = table(tmp_path / "record" / EPISODES)[0]
    assert first["arm"] == "an arm"
    assert float(first["reward"]) == 0.1 + 0.2
    assert [row["loss"] for row in table(tmp_path / "record" / ITERATIONS)][-1] == "nan"


def test_a_record_is_the_same_for_the_same_study(tmp_path):
    small(tmp_path / "out")
    for name in ("one", "two"):
        pack(tmp_path / "out", tmp_path / name, {})
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


@needs_studies
def test_a_published_record_is_written_again_with_its_page(tmp_path, capsys):
    """From its own files, whose numbers it does not change."""
    words = ["--config", str(CONFIG), "--out", str(tmp_path / "car_racing")]
    kept = STUDIES / "car_racing"
    assert study.main([*words, "--unpack", str(kept), "--record", str(tmp_path / "again")]) == 0
    names = {path.name for path in kept.iterdir()}
    assert {path.name for path in (tmp_path / "again").iterdir()} == names
    for name in names - {"pareto.png", "report.html"}:
        assert (tmp_path / "again" / name).read_bytes() == (kept / name).read_bytes(), name
    assert "wrote" in capsys.readouterr().out


@needs_studies
@pytest.mark.parametrize("name", sorted(path.parent.name for path in STUDIES.glob("*/study.yaml")))
def test_rows_of_published_tables_say_what_they_are_of(name):
    rows = table(STUDIES / name / EPISODES)
    assert rows
    assert all(row["arm"] and row["seed"] and row["reward"] for row in rows)
    assert len(list((unpacked(name) / "evaluations").iterdir())) == len(
        {row["evaluation"] for row in rows}
    )
    assert all(row["arm"] and row["iteration"] for row in table(STUDIES / name / ITERATIONS))


def test_a_directory_that_is_not_empty_is_refused(tmp_path):
    small(tmp_path / "out")
    pack(tmp_path / "out", tmp_path / "record", {})
    with pytest.raises(UserError, match="must be empty"):
        unpack(tmp_path / "record", tmp_path / "out")


def with_facts(record, change):
    facts = json.loads(gzip.decompress((record / FACTS).read_bytes()))
    change(facts)
    (record / FACTS).write_bytes(gzip.compress(json.dumps(facts).encode()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f["evaluations"].update({"../../up": {}}), "evaluations"),
        (lambda f: f["runs"].update({"/etc": {}}), "runs"),
        (lambda f: f["runs"]["an-arm-s0"].update({"../x": ""}), "a run has no file ../x"),
        (
            lambda f: f["evaluations"].update({"other": {"records": ["seed"]}}),
            "no episodes of other",
        ),
        (lambda f: f.update({"more": 1}), "more"),
    ],
)
def test_a_strangers_record_writes_nothing_elsewhere(tmp_path, change, said):
    small(tmp_path / "out")
    pack(tmp_path / "out", tmp_path / "record", {})
    with_facts(tmp_path / "record", change)
    with pytest.raises(UserError, match=said):
        unpack(tmp_path / "record", tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("name", [EPISODES, ITERATIONS, FACTS])
def test_damage_is_told(tmp_path, name):
    small(tmp_path / "out")
    pack(tmp_path / "out", tmp_path / "record", {})
    whole = (tmp_path / "record" / name).read_bytes()
    (tmp_path / "record" / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=name):
        unpack(tmp_path / "record", tmp_path / "back")


def test_no_more_is_decompressed_than_a_limit(tmp_path, monkeypatch):
    small(tmp_path / "out")
    pack(tmp_path / "out", tmp_path / "record", {})
    monkeypatch.setattr("training.studies.record._MOST_BYTES", 2**20)
    bomb = io.BytesIO()
    with gzip.open(bomb, "wb") as file:
        file.write(bytes(2**21))
    (tmp_path / "record" / EPISODES).write_bytes(bomb.getvalue())
    with pytest.raises(UserError, match="holds more than 1 MiB"):
        unpack(tmp_path / "record", tmp_path / "back")
