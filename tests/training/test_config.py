"""YAML and --set become frozen configurations; every mistake is one sentence."""

import os
import signal
import subprocess
import sys
import time
import weakref
from typing import Literal

import pytest
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from training.algorithms.es_config import ESConfig
from training.io import config
from training.io.config import UserError

STRICT = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


@dataclass(frozen=True, config=STRICT)
class Inner:
    gap_m: tuple[float, float] = (0.1, 0.2)
    """Gap, metres."""
    count: int = Field(default=3, gt=0)
    """How many."""


@dataclass(frozen=True, config=STRICT)
class Slow:
    name: Literal["slow"] = "slow"
    """Tag."""
    sigma: float = 0.5
    """Deviation."""


@dataclass(frozen=True, config=STRICT)
class Fast:
    name: Literal["fast"] = "fast"
    """Tag."""
    rate: float = 0.1
    """Rate."""


@dataclass(frozen=True, config=STRICT)
class Outer:
    seed: int = 0
    """Seed."""
    gap_count: int | None = None
    """Shorthand of inner.count."""
    inner: Inner = Inner(count=4)
    """Nested."""
    how: Slow | Fast = Field(default=Slow(), discriminator="name")
    """One of two."""


SHORT = {"gap_count": "inner.count"}


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return path

    return write


def load(path, *overrides):
    return config.load(Outer, path, overrides, SHORT)


def test_file_then_overrides(write):
    path = write("seed: 3\ninner: {gap_m: [0.3, 1]}\n")
    loaded = load(path, "inner.count=7", "how.sigma=1e-3")
    assert loaded == Outer(seed=3, gap_count=7, inner=Inner((0.3, 1.0), 7), how=Slow(sigma=1e-3))
    assert load(path, "how.name=fast", "how.rate=2").how == Fast(rate=2.0)


def test_an_interrupt_while_a_configuration_is_dumped_is_not_lost():
    """At each call of Python code within: training dumps its configuration in every iteration."""
    job, calls, at = ESConfig(), 0, 0
    config.dump(job)

    def interrupt(frame, event, argument):
        nonlocal calls
        calls += event == "call"
        if event == "call" and calls == at:
            raise KeyboardInterrupt

    while calls >= at:
        calls, at = 0, at + 1
        sys.setprofile(interrupt)
        try:
            config.dump(job)
            survived = True
        except KeyboardInterrupt:
            survived = False
        finally:
            sys.setprofile(None)
        assert survived == (calls < at), f"lost at call {at}"
    assert at > 50


def test_dump_and_yaml_round_trip(tmp_path):
    original = Outer(seed=2, how=Fast(rate=1 / 3))
    path = tmp_path / "c.yaml"
    path.write_text(config.to_yaml(config.dump(original), "heading"))
    assert config.load(Outer, path) == original
    assert config.dump(config.load(Outer, path))["inner"] == {"gap_m": [0.1, 0.2], "count": 4}


@pytest.mark.parametrize("text", ["gap_count: 5", "inner: {count: 5}", "inner:\ngap_count: 5"])
def test_shorthands_fill_each_other(write, text):
    loaded = load(write(text))
    assert loaded.gap_count == loaded.inner.count == 5


def test_a_shorthand_on_the_command_line_beats_the_file(write):
    path = write("gap_count: 5\ninner: {count: 5}\n")
    assert load(path, "gap_count=6").inner.count == 6
    assert load(path, "inner.count=6").gap_count == 6


@pytest.mark.parametrize(
    ("text", "overrides", "sentence"),
    [
        ("sede: 1", [], r"unknown key sede; the keys known there are gap_count, how, inner, seed"),
        ("inner: {gap: 1}", [], r"unknown key inner.gap; the keys known there are count, gap_m"),
        ("how: {name: warp}", [], r"how.name is warp, where one of slow, fast is needed"),
        ("seed: many", [], r"seed = 'many', but input should be a valid integer"),
        ("inner: {count: 0}", [], r"inner.count = 0, but input should be greater than 0"),
        ("inner: {gap_m: [.nan, 1]}", [], r"inner.gap_m.0 = nan, but .*finite"),
        ("inner: {count: 2}\ngap_count: 3", [], r"gap_count = 3 and inner.count = 2 are the same"),
        ("", ["gap_count=3", "inner.count=2"], r"--set: gap_count = 3 and inner.count = 2"),
        ("seed: [", [], r"is not valid YAML"),
        ("", ["seed=!!int abc"], r"--set seed: 'abc' is no int"),
        ("", ["seed=&a {b: *a}"], r"--set seed is not valid YAML: nested too deeply"),
        ("", ["seed=" + "[" * 3000], r"not valid YAML: it is nested too deeply"),
        ("", [".".join("a" * 3000) + "=1"], r"plain values only"),
        ("- 1", [], r"must hold `key: value` lines, but holds a list"),
        ("", ["seed"], r"--set takes key=value .* got 'seed'"),
        ("", ["seed=x"], r"with --set seed=x: seed = 'x', but"),
    ],
)
def test_mistakes(write, text, overrides, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        load(write(text), *overrides)
    assert "\n" not in str(caught.value)


def test_missing_and_unreadable_files(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*none.yaml: No such file"):
        config.read_yaml(tmp_path / "none.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not a text file"):
        config.read_yaml(binary)


def test_describe_names_every_field_with_its_own_default():
    text = config.describe(Outer)
    for expected in (
        "seed = 0   [int]",
        "inner.count = 4   [int > 0]",
        "inner.gap_m = [0.1, 0.2]",
        "how.sigma = 0.5   [float] (for how.name=slow)",
        "how.rate = 0.1   [float] (for how.name=fast)",
        "Gap, metres.",
    ):
        assert expected in text


def test_exit_status(capsys):
    def fail(error):
        raise error

    assert config.exit_status(lambda: 0) == 0
    assert config.exit_status(lambda: fail(UserError("one\n sentence"))) == 2
    assert capsys.readouterr().err == "error: one sentence\n"
    assert config.exit_status(lambda: fail(KeyboardInterrupt())) == 130


@pytest.mark.parametrize(
    "command",
    [
        "sys.exit(print(1))",  # as --help does; flushed at the end
        "[print(i, file=sys.stderr, flush=True) for i in range(9)]",
    ],
)
def test_a_closed_output_ends_a_command_as_it_ends_other_programs(command):
    start = "import sys; from training.io.config import exit_status"
    program = f"{start}; sys.exit(exit_status(lambda: {command}))"
    reader, writer = os.pipe()
    os.close(reader)
    stream, other = ("stderr", "stdout") if "stderr" in command else ("stdout", "stderr")
    streams = {stream: writer, other: subprocess.PIPE}
    done = subprocess.run([sys.executable, "-c", program], **streams, check=False)
    os.close(writer)
    assert done.returncode == 141
    assert not getattr(done, other)


def test_a_command_without_standard_output_ends_as_ever():
    """A process with closed standard output, as a shell starts with >&-."""
    start = "import sys; from training.io.config import exit_status"
    program = f"{start}; assert sys.stdout is None; sys.exit(exit_status(lambda: print(1) or 0))"
    words = ["sh", "-c", '"$0" -c "$1" >&-', sys.executable, program]
    done = subprocess.run(words, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_another_broken_pipe_is_not_the_outputs():
    def fail():
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        config.exit_status(fail)


def test_control_c_is_not_lost_where_python_ignores_exceptions():
    class Thing:
        pass

    def command():
        thing = Thing()
        seen = []

        def interrupt(_):
            seen.append(True)
            signal.raise_signal(signal.SIGINT)

        reference = weakref.ref(thing, interrupt)
        del thing
        assert seen, reference  # and yet no KeyboardInterrupt
        time.sleep(10)
        return 0

    assert config.exit_status(command) == 130
