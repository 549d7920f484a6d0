"""A study's record: few files that hold the same results."""

import csv
import gzip
import hashlib
import json
import lzma
import re
import shlex
from html import unescape

import pytest

from tests.helpers import refused
from tests.page_tables import differences, tables
from tests.training.published import ROOT, STUDIES, needs_studies
from training import study
from training.compare.config import load_config
from training.compare.record import EPISODES, FACTS, ITERATIONS, pack, unpack
from training.compare.study import Study
from training.io.config import UserError

CONFIG = ROOT / "configs" / "studies" / "car_racing.yaml"


def table(path):
    with lzma.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


CONTENTS = ({"an-arm-s0": {"arm": "an arm", "training_seed": 0}}, {"an-arm-s0": {"arm": "an arm"}})


def small(out):
    """A study's directory with one run and one evaluation."""
    files = {
        "study.yaml": "title: small\n",
        "runs/an-arm-s0/config.yaml": "seed: 0\n",
        "runs/an-arm-s0/metrics.csv": "iteration,loss\n1,0.30000000000000004\n2,nan\n",
        "gaze/an-arm-s0.json": '{"views": 3}\n',
        "costs.json": '{"costs": {}}\n',
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


def packed(tmp_path, name="record"):
    """The record of that directory, which holds other things as well."""
    small(tmp_path / "out")
    (tmp_path / "out" / "evaluations" / "notes (copy).json").write_text("of mine")
    (tmp_path / "out" / "runs" / ".trash").mkdir(exist_ok=True)
    pack(tmp_path / "out", tmp_path / name, *CONTENTS)
    return tmp_path / name


def test_a_record_names_no_folder_of_the_machine_where_it_was_made(tmp_path):
    config = tmp_path / "out" / "runs" / "an-arm-s0" / "config.yaml"
    small(tmp_path / "out")
    config.write_text(f"init_from: {tmp_path / 'out' / 'runs' / 'an-arm-s0-1'}\n")
    pack(tmp_path / "out", tmp_path / "record", *CONTENTS)
    unpack(tmp_path / "record", tmp_path / "back")
    back = (tmp_path / "back" / "runs" / "an-arm-s0" / "config.yaml").read_text()
    assert back == "init_from: studies/record/runs/an-arm-s0-1\n"


@needs_studies
def test_published_records_name_no_folder_of_a_machine():
    for path in sorted(STUDIES.glob(f"*/{FACTS}")):
        facts = lzma.decompress(path.read_bytes()).decode()
        found = re.search(r"[\" =](/(tmp|work|home|root|mnt)/[^\"]*)", facts)
        assert found is None, f"{path}: {found}"


def test_the_same_files_come_back(tmp_path):
    record = packed(tmp_path)
    for path in record.iterdir():  # the same for the same study
        assert path.read_bytes() == (packed(tmp_path, "again") / path.name).read_bytes()
    unpack(record, tmp_path / "back")
    back = {
        path.relative_to(tmp_path / "back").as_posix(): path.read_text()
        for path in (tmp_path / "back").rglob("*")
        if path.is_file()
    }
    assert back == small(tmp_path / "out")
    first = table(record / EPISODES)[0]
    assert (first["study_arm"], first["arm"]) == ("an arm", "2.5")  # a number of the same name
    assert float(first["reward"]) == 0.1 + 0.2
    last = table(record / ITERATIONS)[-1]
    assert (last["arm"], last["loss"]) == ("an arm", "nan")


def of_before(record):
    """A record of the first format: gzip, and the costs in a separate file."""
    facts = json.loads(lzma.decompress((record / FACTS).read_bytes()))
    (record / "costs.json").write_text(facts.pop("costs"))
    for name in (EPISODES, ITERATIONS):
        data = gzip.compress(lzma.decompress((record / name).read_bytes()), mtime=0)
        (record / name).unlink()
        (record / name).with_suffix(".gz").write_bytes(data)
        del facts["tables"][name]
        facts["tables"][name.replace(".xz", ".gz")] = hashlib.sha256(data).hexdigest()
    (record / FACTS).unlink()
    (record / FACTS).with_suffix(".gz").write_bytes(gzip.compress(json.dumps(facts).encode()))


def test_a_record_of_before_is_read_and_replaced(tmp_path):
    record = packed(tmp_path)
    now = {path.name: path.read_bytes() for path in record.iterdir()}
    of_before(record)
    unpack(record, tmp_path / "back")
    for name, text in small(tmp_path / "again").items():
        assert (tmp_path / "back" / name).read_text() == text
    pack(tmp_path / "back", record, *CONTENTS)
    assert {path.name: path.read_bytes() for path in record.iterdir()} == now


def test_a_row_that_a_kill_cut_short_is_left_out(tmp_path):
    small(tmp_path / "out")
    with (tmp_path / "out" / "runs" / "an-arm-s0" / "metrics.csv").open("a") as file:
        file.write("3")
    pack(tmp_path / "out", tmp_path / "record", *CONTENTS)
    assert [row["iteration"] for row in table(tmp_path / "record" / ITERATIONS)] == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "data"),
    [("evaluations/an-arm-s0.json", b"[1]"), ("evaluations/an-arm-s0.json", b"{"),
     ("runs/an-arm-s0/config.yaml", b"\xff")],
)  # fmt: skip
def test_a_damaged_study_is_one_sentence(tmp_path, name, data):
    small(tmp_path / "out")
    (tmp_path / "out" / name).write_bytes(data)
    with pytest.raises(UserError, match=f"{name} is damaged"):
        pack(tmp_path / "out", tmp_path / "record", *CONTENTS)


def test_a_planted_link_leads_no_file_elsewhere(tmp_path):
    """Nor does what a killed unpacking left."""
    record, elsewhere = packed(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("mine")
    planted = tmp_path / ".back.unpacking"
    planted.symlink_to(elsewhere)
    unpack(record, tmp_path / "back")
    assert [path.name for path in elsewhere.iterdir()] == ["mine"]
    assert not (tmp_path / "back").is_symlink()
    planted.mkdir()
    (planted / "runs").symlink_to(elsewhere)
    (tmp_path / "back").rename(tmp_path / "first")
    unpack(record, tmp_path / "back")
    assert [path.name for path in elsewhere.iterdir()] == ["mine"]


def again(name, folder, *more):
    """The page of a published study, written of its record; what it is made with."""
    command = re.search("<pre>.*--config (.*)</pre>", (STUDIES / name / "report.html").read_text())
    config, *rest = shlex.split(unescape(command[1]))
    words = ["--config", str(ROOT / config), *rest, "--out", str(folder / name)]
    assert study.main([*words, "--unpack", str(STUDIES / name), *more]) == 0
    return words


SMALLEST = "bimanual_sweep_choices"


@needs_studies
@pytest.mark.records
def test_a_published_record_is_written_again_with_its_page(tmp_path, capsys):
    """From its own files, whose numbers it does not change."""
    kept, new = STUDIES / SMALLEST, tmp_path / "again"
    words = again(SMALLEST, tmp_path, "--record", str(new))
    names = {path.name for path in kept.iterdir()}
    assert {path.name for path in new.iterdir()} == names
    for name in names - {"report.html"}:  # which fonts and versions change
        assert (new / name).read_bytes() == (kept / name).read_bytes(), name
    pages = [(folder / "report.html").read_text() for folder in (kept, new)]
    assert differences(*pages) == []
    leads = [page.partition('<p class="lead">')[2][:300] for page in pages]
    assert leads[0] == leads[1]
    assert "wrote" in capsys.readouterr().out
    assert study.main([*words, "--page"]) == 0  # what is begun goes on


@needs_studies
def test_evaluations_of_another_number_of_episodes_are_reported(tmp_path, capsys):
    """They do not count, and the page would say only that parts are missing."""
    path = ROOT / "configs" / "studies" / f"{SMALLEST}.yaml"
    own = load_config(path).episodes
    for asked in (own, own + 1):
        settings = load_config(path, [f"episodes={asked}"])
        Study(settings, path, tmp_path / f"{asked}").unpack(STUDIES / SMALLEST)
    told = capsys.readouterr().out
    assert told.count("note: ") == 1
    assert f"{own + 1} are asked for" in told
    assert told.endswith(f"--set episodes={own}\n")


@needs_studies
@pytest.mark.records
@pytest.mark.parametrize("name", sorted({one.parent.name for one in STUDIES.glob("*/study.yaml")}))
def test_every_table_of_a_published_page_comes_of_its_record(tmp_path, name):
    again(name, tmp_path, "--page")
    kept = (STUDIES / name / "report.html").read_text()
    assert len(tables(kept)) >= 2
    assert differences(kept, (tmp_path / name / "report.html").read_text()) == []


def test_a_difference_of_two_pages_is_reported():
    page = "<table><tr><th>arm</th></tr><tr><td>a <small>1 to 2</small></td></tr></table>"
    assert differences(page, page.replace("<small>", "<b>").replace("</small>", "</b>")) == []
    changed = page.replace("2", "3")
    assert differences(page, changed) == ["table 1, row 1: ['a 1 to 2'] became ['a 1 to 3']"]
    assert differences(page, "") == [
        "table 1, row 0: ['arm'] became None", "table 1, row 1: ['a 1 to 2'] became None",
    ]  # fmt: skip


@needs_studies
def test_the_records_are_small():
    """Tables and one page each, 3.4 MB together; no folder of the machine is named."""
    sizes = {path: path.stat().st_size for path in STUDIES.glob("*/*") if path.is_file()}
    assert sum(sizes.values()) < 3_400_000
    for path in STUDIES.glob(f"*/{FACTS}"):
        assert b"/tmp/" not in lzma.decompress(path.read_bytes()), path
    assert {path.name for path in sizes} == {
        "episodes.csv.xz", "facts.json.xz", "iterations.csv.xz", "report.html", "study.yaml",
    }  # fmt: skip


@needs_studies
def test_a_record_takes_no_other_place(tmp_path, capsys):
    """Nothing is written over another study, or the study itself."""
    out, other = tmp_path / "car_racing", STUDIES / "stepping_stones_stages"
    unpack(STUDIES / "car_racing", out)
    words = ["--config", str(CONFIG), "--out", str(out)]
    before = {path: path.read_bytes() for path in other.iterdir()}
    for place, said in ((other, "holds another study"), (out, "a study's own directory")):
        refused(capsys, study, [*words, "--record", str(place)], said)
    assert {path: path.read_bytes() for path in other.iterdir()} == before
    begun = ["--config", str(CONFIG), "--out", str(tmp_path / "new"), "--unpack"]
    assert study.main([*begun, str(other)]) == 2
    assert study.main([*begun, str(STUDIES / "car_racing"), "--set", "tpyo=1"]) == 2
    assert not (tmp_path / "new").exists()


def with_facts(record, change):
    facts = json.loads(lzma.decompress((record / FACTS).read_bytes()))
    change(facts)
    (record / FACTS).write_bytes(lzma.compress(json.dumps(facts).encode()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f["evaluations"].update({"../../up": {}}), "evaluations"),
        (lambda f: f["runs"].update({"/etc": {}}), "runs"),
        (lambda f: f["runs"]["an-arm-s0"].update({"../x": ""}), "a run has no file ../x"),
        (lambda f: f["evaluations"].update({"b": {}}), "no episodes of b"),
        (lambda f: f["numbers"].update({"an-arm-s0": [["a"]]}), "numbers"),
        (lambda f: f["tables"].update({EPISODES: "0"}), "is not the table"),
        (lambda f: f.update({"more": 1}), "more"),
        (lambda f: f.update(gaze={"a": "\ud800"}), "facts.json.xz is damaged"),
        (lambda f: f.update(evaluations={"a": [[]]}), "facts.json.xz is damaged"),
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


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("study.yaml", b"\xff", "study.yaml is damaged"),
        (FACTS, b"no xz", f"{FACTS} is damaged"),
        (EPISODES, lzma.compress(b"a,b")[:30], f"{EPISODES} is damaged"),
        (ITERATIONS, lzma.compress(b"a,b")[:30], f"{ITERATIONS} is damaged"),
        (EPISODES, lzma.compress(b"\0" * 2**21), "holds more than 1 MiB"),
        (EPISODES, lzma.compress(b"a,b\n" + b",\n" * 3000), "or too large"),
        (EPISODES, lzma.compress(b"a,b\n1\n"), "row 2"),
        (EPISODES, lzma.compress(b""), f"{EPISODES} is damaged"),
        (EPISODES, lzma.compress(b"evaluation\n\n"), f"{EPISODES} is damaged"),
        (EPISODES, lzma.compress(b"evaluation,reward\nan-arm-s0,{\n"), "is no JSON"),
    ],
)
def test_a_damaged_record_is_one_sentence(tmp_path, monkeypatch, name, data, said):
    """And no more is read than a record can have."""
    record = packed(tmp_path)
    monkeypatch.setattr("training.compare.record._MOST_BYTES", 2**20)
    monkeypatch.setattr("training.compare.record._MOST_CELLS", 5000)
    if name in (EPISODES, ITERATIONS):
        with_table(record, name, data)
    else:
        (record / name).write_bytes(data)
    with pytest.raises(UserError, match=said):
        unpack(record, tmp_path / "back")


def test_a_link_is_no_file_of_a_record(tmp_path):
    record = packed(tmp_path)
    (tmp_path / "secret").write_text("mine")
    (record / "study.yaml").unlink()
    (record / "study.yaml").symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match="is a link"):
        unpack(record, tmp_path / "back")
    with pytest.raises(UserError, match="must be empty"):
        unpack(record, tmp_path / "out")
