"""YAML as configurations take it: bounded, with merge keys, and with nothing left to guess."""

import math

import pytest
import yaml

from tests.cheap import cheap
from training.command.errors import UserError
from training.io.yaml_text import MAX_BYTES, MAX_NODES, parse, read_yaml, to_yaml


def nested(first, line):
    """Twelve levels of aliases, four of the level below in each."""
    levels = (line.format(i=i, below=", ".join([f"*a{i - 1}"] * 4)) for i in range(1, 12))
    return f"a0: &a0 {first}\n" + "\n".join(levels)


def chain(length):
    """Lists that hold the one before."""
    return "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, length))


BOMBS = {
    "lists": nested("[1, 1, 1, 1]", "a{i}: &a{i} [{below}]"),
    "mappings": nested("{k: 1}", "a{i}: &a{i} {{k: [{below}]}}"),
    "merges": nested("{k: 1}", "a{i}: &a{i} {{<<: [{below}]}}"),
    "flow": "a: [&a [1,1,1,1], " + ", ".join(f"&{c} [" + f"*{b}," * 9 + "]" for b, c in
                                             zip("abcdefgh", "bcdefghi", strict=True)) + "]",
}  # fmt: skip


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_aliases_that_multiply_are_refused_at_once(text):
    with cheap(1), pytest.raises(UserError, match=rf"f: it holds more than {MAX_NODES} values"):
        parse(text, "f")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[" + "1," * MAX_NODES + "]", "it holds more than"),
        ("".join(f"k{i}: 1\n" for i in range(MAX_NODES)), "it holds more than"),
        ("- " * 9999, "nested too deeply"),
        (chain(2000), "nested too deeply"),
        ("a: " + "9" * 100_000, "a: 9{40}... is too large for a number"),
        ("a: 0x" + "f" * 100_000, "a: 0xf{38}... is too large for a number"),
        ("a: 1e" + "9" * 100_000, "a: 1e9{38} is too large for a number"),
        ("%YAML " + "1" * 10_000 + ".1\n---\na: 1", "is not valid YAML: Exceeds the limit"),
        ("a: 'x" + "y" * MAX_BYTES + "'", f"has more than {MAX_BYTES} characters"),
    ],
)
def test_what_would_take_long_is_refused_soon(text, sentence):
    with cheap(2), pytest.raises(UserError, match=sentence) as caught:
        parse(text, "big.yaml")
    assert len(str(caught.value)) < 400


def test_files_without_end_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"cannot read the configuration /dev/zero: "):
        read_yaml("/dev/zero")
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(2 * 10**9)
    with pytest.raises(UserError, match=r"large.yaml: .*(bytes|MiB|large)"):
        read_yaml(large)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{<<: {episode_s: 3.0}, episode_s: 4.0}", {"episode_s": 4.0}),
        ("{episode_s: 4.0, <<: {episode_s: 3.0, seed: 1}}", {"episode_s": 4.0, "seed": 1}),
        ("{<<: [{a: 1}, {a: 2, b: 3}], c: 4}", {"a": 1, "b": 3, "c": 4}),
        ("[&x {a: 1, b: [2]}, {<<: *x, a: 3}]", [{"a": 1, "b": [2]}, {"a": 3, "b": [2]}]),
        ("[&x {a: 1}, &y {<<: *x, b: 2}, {<<: [*y, *x], b: 3}]",
         [{"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 3}]),
        ("{<<: []}", {}),
        ('{"<<": 3}', {"<<": 3}),
    ],
)  # fmt: skip
def test_merge_keys_bring_what_is_not_given(text, value):
    assert parse(text, "f") == value


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("seed: 1\nseed: 2", "f: key 'seed' is given twice (line 2)"),
        ("env: {<<: {a: 1, a: 2}}", "f: env.<<: key 'a' is given twice"),
        ("{<<: {a: 1}, <<: {b: 1}}", "f: key '<<' is given twice, but takes a list"),
        ("env: {<<: 3}", "f: env.<<: it takes a mapping or a list of mappings, got 3"),
        ("env: {<<: [{a: 1}, [2]]}", "f: env.<<: it takes a mapping or a list of mappings, got"),
        ("{1: 2}", "f: a key is text, got 1"),
        ("{? [1] : 2}", "f: a key is text, got a sequence"),
        ("a: !!set {b}", "the tag !!set is not known; a configuration holds plain values only"),
        ("!!python/name:os.system x", "f: the tag !!python/name:os.system is not known"),
        ("a: 2026-01-01", "f: a: 2026-01-01 is a date, but a configuration holds plain"),
        ("a: [1, 1e400]", "f: a.1: 1e400 is too large for a number"),
        (r'a: "\uD800"', "or an incomplete character"),
        (r'a: "b\0"', "holds a NUL or an incomplete character"),
        (r'a: "\U99999999"', "f is not valid YAML: "),
    ],
)  # fmt: skip
def test_what_is_not_plain_is_one_sentence(text, sentence):
    with pytest.raises(UserError) as caught:
        parse(text, "f")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("scalar", "advice"),
    [
        ("010", "10 or 8"), ("-010", "-10 or -8"), ("0777", "777 or 511"), ("08", "8"), ("00", "0"),
        ("1:30", "90"), ("-1:30", "-90"), ("1:30:00", "5400"), ("1:30.5", "90.5"), ("01:30.", "90"),
        ("0o10", "8"), ("0b11", "3"), ("-0x10", "-16"), ("0x1_0", "16"), ("1_000", "1000"),
        ("1_000.5", "1000.5"), ("1_0e3", "10000"), ("0_7", "7"), ("yes", "true"), ("No", "false"),
        ("ON", "true"), ("off", "false"), ("0b_", "a decimal number"),
    ],
)  # fmt: skip
def test_scalars_that_yaml_versions_read_differently_are_refused(scalar, advice):
    for place in ("{}", "[1, {}]", "{{k: {}}}", "!!int {}", "!!float {}"):
        with pytest.raises(UserError) as caught:
            parse(place.format(scalar), "f")
        assert f"{scalar} is ambiguous; write {advice}, or '{scalar}' in" in str(caught.value)
    assert parse(f"'{scalar}'", "f") == scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("1E5", 1e5), ("2.e3", 2000.0), (".5", 0.5), ("-5.", -5.0), ("+7", 7),
        ("010.5", 10.5), ("0x1F", 31), ("-0", 0), ("0", 0), ("true", True), ("FALSE", False),
        ("~", None), ("", None), ("null", None), ("!!float 3", 3.0), ("!!str 010", "010"),
        ("01:30", "01:30"), ("1:60", "1:60"), ("positive:256", "positive:256"), ("y", "y"),
        ("0o8", "0o8"), ("=", "="), ("1.2.3", "1.2.3"), ("inf", "inf"), ("\u0663", "\u0663"),
        ("1\u0663e3", "1\u0663e3"), ("127.0.0.1:6379", "127.0.0.1:6379"), (".inf", math.inf),
    ],
)  # fmt: skip
def test_scalars_without_doubt_are_read(text, value):
    found = parse(text, "f")
    assert found == value
    assert type(found) is type(value)


def test_nothing_that_is_read_is_shared():
    """A change of one setting must not be one of another, too."""
    data = parse("[&x {a: [1]}, *x, {<<: *x}]", "f")
    data[0]["a"].append(2)
    assert data == [{"a": [1, 2]}, {"a": [1]}, {"a": [1]}]


ODD = ["010", "1:30", "1e3", "1e400", "yes", "0o10", "1_0", "2026-01-01", "2024-02-30", "null",
       "<<", "=", "", " a", "a: b", "é☃", ".inf", "0x1", "-", "[", "line\nbreak"]  # fmt: skip


def test_what_is_written_is_read_back(tmp_path):
    shared = {"text": "010"}
    data = {"texts": ODD, "numbers": [1e-5, 1e16, 0.1, 10**20, True, None], "a": shared}
    data |= {"b": shared, **dict.fromkeys(ODD, 1)}
    path = tmp_path / "c.yaml"
    path.write_text(to_yaml(data, "heading"))
    assert read_yaml(path) == data
    assert "&" not in path.read_text()


def test_a_file_of_older_runs_is_read(tmp_path):
    """PyYAML's own dumper wrote them."""
    data = {"a": ["positive", "stones: 3", "yes", "1:30"], "b": {"c": 1e-5, "d": None, "e": [0.1]}}
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False, default_flow_style=None))
    assert read_yaml(path) == data
