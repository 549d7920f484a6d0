"""A study's record: few files that hold the same results."""

import csv
import gzip
import hashlib
import json

import pytest

from tests.training.published import ROOT, STUDIES, needs_studies, unpacked
from training import study
from training.settings.config import UserError
from training.studies.record import EPISODES, FACTS, ITERATIONS, Told, pack, unpack

CONFIG = ROOT / "configs" / "studies" / "car_racing.yaml"


def table(path):
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


TOLD = Told({"an-arm-s0": {"arm": "an arm", "training_seed": 0}}, {"an-arm-s0": {"arm": "an arm"}})


def small(out):
    """A study's directory with one run and one evaluation."""
    files = {
        "study.yaml": "title: small\n",
        "runs/an-arm-s0/config.yaml": "seed: 0\n",
        "runs/an-arm-s0/metrics.csv": "iteration,loss\n1,0.30000000000000004\n2,nan\n",
        "gaze/an-arm-s0.json": '{"views": 3}\n',
    }
    records = [  # not all have all numbers
        {"fell": True, "arm": 2.5, "seed": 100_000, "reward": 0.1 + 0.2, "success": 1.0},
        {"fell": False, "arm": 0.5, "seed": 100_001, "reward": -1e-17, "fell_at": 3.25},
    ]
    entry = {"name": "an-arm-s0", "seeds": [r["seed"] for r in records], "records": records}
    files["evaluations/an-arm-s0.json"] = json.dumps(entry, indent=1) + "\n"
    for name, text in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)
    return files


def packed(tmp_path):
    """The record of that directory, which holds other things as well."""
    small(tmp_path / "out")
    (tmp_path / "out" / "evaluations" / "notes (copy).json").write_text("of mine")
    (tmp_path / "out" / "runs" / ".trash").mkdir()
    pack(tmp_path / "out", tmp_path / "record", TOLD)
    return tmp_path / "record"


def test_the_same_files_come_back(tmp_path):
    record = packed(tmp_path)
    unpack(record, tmp_path / "back")
    back = {
        path.relative_to(tmp_path / "back").as_posix(): path.read_text()
        for path in (tmp_path / "back").rglob("*")
        if path.is_file()
    }
    assert back == small(tmp_path / "again")
    first = table(record / EPISODES)[0]
    assert (first["study_arm"], first["arm"]) == ("an arm", "2.5")  # a number of the same name
    assert float(first["reward"]) == 0.1 + 0.2
    last = table(record / ITERATIONS)[-1]
    assert (last["arm"], last["loss"]) == ("an arm", "nan")


def test_a_record_is_the_same_for_the_same_study(tmp_path):
    small(tmp_path / "out")
    for name in ("one", "two"):
        pack(tmp_path / "out", tmp_path / name, TOLD)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_a_row_that_a_kill_cut_short_is_left_out(tmp_path):
    small(tmp_path / "out")
    with (tmp_path / "out" / "runs" / "an-arm-s0" / "metrics.csv").open("a") as file:
        file.write("3")
    pack(tmp_path / "out", tmp_path / "record", TOLD)
    assert [row["iteration"] for row in table(tmp_path / "record" / ITERATIONS)] == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("evaluations/an-arm-s0.json", b"[1]"),
        ("evaluations/an-arm-s0.json", b"{"),
        ("runs/an-arm-s0/config.yaml", b"\xff"),
    ],
)
def test_a_study_that_is_damaged_is_told(tmp_path, name, data):
    small(tmp_path / "out")
    (tmp_path / "out" / name).write_bytes(data)
    with pytest.raises(UserError, match=f"{name} is damaged"):
        pack(tmp_path / "out", tmp_path / "record", TOLD)


@needs_studies
def test_a_published_record_is_written_again_with_its_page(tmp_path, capsys):
    """From its own files, whose numbers it does not change."""
    out, kept = tmp_path / "car_racing", STUDIES / "car_racing"
    words = ["--config", str(CONFIG), "--out", str(out), "--unpack", str(kept)]
    assert study.main([*words, "--record", str(tmp_path / "again")]) == 0
    names = {path.name for path in kept.iterdir()}
    assert {path.name for path in (tmp_path / "again").iterdir()} == names
    for name in names - {"pareto.png", "report.html"}:  # which fonts and versions change
        assert (tmp_path / "again" / name).read_bytes() == (kept / name).read_bytes(), name
    lead = '<p class="lead">'
    pages = [(f / "report.html").read_text().partition(lead)[2][:300] for f in (out, kept)]
    assert pages[0] == pages[1]
    assert "wrote" in capsys.readouterr().out
    assert study.main([*words, "--page"]) == 0  # what is begun goes on


@needs_studies
def test_a_record_takes_no_other_place(tmp_path, capsys):
    """Nothing is written over another study, or the study itself."""
    out, other = tmp_path / "car_racing", STUDIES / "stepping_stones_stages"
    unpack(STUDIES / "car_racing", out)
    words = ["--config", str(CONFIG), "--out", str(out)]
    before = {path: path.read_bytes() for path in other.iterdir()}
    for place, said in ((other, "holds another study"), (out, "a study's own directory")):
        assert study.main([*words, "--record", str(place)]) == 2
        assert said in capsys.readouterr().err
    assert {path: path.read_bytes() for path in other.iterdir()} == before
    begun = ["--config", str(CONFIG), "--out", str(tmp_path / "new"), "--unpack"]
    assert study.main([*begun, str(other)]) == 2
    assert study.main([*begun, str(STUDIES / "car_racing"), "--set", "tpyo=1"]) == 2
    assert not (tmp_path / "new").exists()


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
    with pytest.raises(UserError, match="must be empty"):
        unpack(packed(tmp_path), tmp_path / "out")


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
        (lambda f: f["evaluations"].update({"b": {}}), "no episodes of b"),
        (lambda f: f["numbers"].update({"an-arm-s0": [["a"]]}), "numbers"),
        (lambda f: f["tables"].update({EPISODES: "0"}), "another table"),
        (lambda f: f.update({"more": 1}), "more"),
    ],
)
def test_a_strangers_record_writes_nothing_elsewhere(tmp_path, change, said):
    record = packed(tmp_path)
    with_facts(record, change)
    with pytest.raises(UserError, match=said):
        unpack(record, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def with_table(record, name, data):
    (record / name).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    with_facts(record, lambda facts: facts["tables"].update({name: digest}))


def test_damage_is_told(tmp_path):
    record = packed(tmp_path)
    for name in (EPISODES, ITERATIONS):
        whole = (record / name).read_bytes()
        with_table(record, name, whole[: len(whole) // 2])
        with pytest.raises(UserError, match=f"{name} is damaged"):
            unpack(record, tmp_path / "back")
        with_table(record, name, whole)
    for name, data in (("study.yaml", b"\xff"), (FACTS, b"no gzip")):
        (record / name).write_bytes(data)
        with pytest.raises(UserError, match=f"{name} is damaged"):
            unpack(record, tmp_path / "back")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"\0" * 2**21, "holds more than 1 MiB"),
        (b"a,b\n" + b",\n" * 3000, "or too large"),
        (b"a,b\n1\n", "row 2"),
        (b"evaluation,reward\nan-arm-s0,{\n", "is no JSON"),
    ],
)
def test_no_more_is_read_than_a_record_can_have(tmp_path, monkeypatch, text, said):
    record = packed(tmp_path)
    monkeypatch.setattr("training.studies.record._MOST_BYTES", 2**20)
    monkeypatch.setattr("training.studies.record._MOST_CELLS", 5000)
    with_table(record, EPISODES, gzip.compress(text))
    with pytest.raises(UserError, match=said):
        unpack(record, tmp_path / "back")


def test_a_link_is_no_file_of_a_record(tmp_path):
    record = packed(tmp_path)
    (tmp_path / "secret").write_text("mine")
    (record / "study.yaml").unlink()
    (record / "study.yaml").symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match="is a link"):
        unpack(record, tmp_path / "back")
