"""Data sets: found, downloaded and unpacked; bad files are named in one sentence."""

import io
import lzma
import math
import re
import tarfile
from functools import partial

import numpy as np
import pytest
import torch

from experiments.data import fashion_mnist, fsdd, words
from experiments.data.files import RemoteFile, find, read_archive
from experiments.data.words import Corpus, frequent
from tests.experiments.small_data import (
    packed,
    story,
    tones,
    wav,
    write_recordings,
    write_stories,
)
from training.io.config import UserError

PICTURES, LABELS = "fashion_mnist/t10k-images-idx3-ubyte.gz", "fashion_mnist/t10k-labels-idx1-ubyte"
SPEECH, TEXT = "fsdd/recordings.tar.xz", "wikitext2"


def test_a_download_is_kept_by_its_recordings_however_it_is_packed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FOVEATE_DATA", raising=False)
    files = tones()
    there = tmp_path / "all.tar.gz"
    there.write_bytes(packed(dict(reversed(files.items())), "gz", "repo-1/recordings"))
    home = RemoteFile(there.as_uri(), fsdd.digest(files), digest=fsdd.ARCHIVE.digest)
    assert find("fsdd", home).read_bytes() == there.read_bytes()
    files["7_ann_0.wav"] = wav(np.arange(9))
    other = RemoteFile(there.as_uri().replace("all", "changed"), home.sha256, digest=home.digest)
    (tmp_path / "changed.tar.gz").write_bytes(packed(files, "gz"))
    with pytest.raises(UserError, match=r"changed.tar.gz must have SHA-256 [0-9a-f]{64}, got"):
        find("fsdd", other)
    assert [path.name for path in (tmp_path / "cache/foveate/fsdd").iterdir()] == ["all.tar.gz"]


def test_unpacked_recordings_are_read_alike(tmp_path):
    (tmp_path / "recordings").mkdir()
    for name, content in tones().items():
        (tmp_path / "recordings" / name).write_bytes(content)
    data = tmp_path / "data"
    data.mkdir()
    packed_ones = fsdd.load(write_recordings(data, packed(tones())))
    for ours, theirs in zip(fsdd.load(str(tmp_path)), packed_ones, strict=True):
        assert ours[:3] == theirs[:3]
        assert np.array_equal(ours.samples, theirs.samples)


def test_only_regular_files_of_the_right_names_are_read_from_an_archive():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in ("../recordings/1_ann_0.wav", "/recordings/2_ann_0.wav", "recordings/README",
                     "other/3_ann_0.wav", "recordings/1_ann_0.wav/4_ann_0.wav"):  # fmt: skip
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"abc"))
        link = tarfile.TarInfo("recordings/5_ann_0.wav")
        link.type, link.linkname = tarfile.SYMTYPE, "../recordings/1_ann_0.wav"
        archive.addfile(link)
    found = read_archive("x.tar", file.getvalue(), fsdd._wanted)
    assert found == {"1_ann_0.wav": b"abc", "2_ann_0.wav": b"abc"}


def test_an_archive_that_unpacks_to_more_than_allowed_is_refused(monkeypatch):
    monkeypatch.setattr("experiments.data.files._MOST_IN_ARCHIVE", 2**20)
    files = {"0_ann_0.wav": bytes(2**20)}
    with pytest.raises(UserError, match="x holds more than 1048576 bytes"):
        read_archive("x", packed(files, "gz"), fsdd._wanted)
    with pytest.raises(UserError, match="x cannot be read: Memory usage limit exceeded"):
        read_archive("x", packed(files, "xz"), fsdd._wanted)


def test_numbers_follow_first_appearance_and_rare_words_become_unknown(tmp_path):
    write_stories(tmp_path)
    text = words.load("wikitext2", str(tmp_path))
    assert text.words[0] == story(9, 0).split()[0]
    assert len(text.words) == 11
    assert text.words[text.train[9]] == "<eos>"
    assert len(text.train) == 3000 + math.ceil(3000 / 9)
    few = frequent(text, 4)
    assert len(few.words) == 4
    assert "<unk>" in few.words
    assert len(few.valid) == len(text.valid)
    own = Corpus(torch.tensor([0, 1, 1, 2, 2, 3]), torch.tensor([3]), torch.tensor([1]),
                 ("a", "b", "<unk>", "c"))  # fmt: skip
    assert frequent(own, 3).words == ("a", "b", "<unk>")
    assert frequent(own, 3).valid.tolist() == [2]


def test_a_text_without_a_public_url_must_be_in_a_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("FOVEATE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"ptb.train.txt of ptb cannot be fetched"):
        words.load("ptb")


def backwards():
    """An archive whose second member's size leads back to the first."""
    whole = bytearray(packed(tones(), ""))
    second = 512 + (len(tones()["0_ann_0.wav"]) + 511) // 512 * 512
    whole[second + 124 : second + 136] = (-4096).to_bytes(12, "big", signed=True)
    header = whole[second : second + 512]
    header[148:156] = b" " * 8
    whole[second + 148 : second + 156] = f"{sum(header):06o}\0 ".encode()
    return bytes(whole)


def recorded(**changed):
    return packed({**tones(), **{f"3_{name}_5.wav": content for name, content in changed.items()}})


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        (PICTURES, None, "must have train-images-idx3-ubyte.gz or"),
        (PICTURES, b"\0\0\x08", "-ubyte.gz cannot be read"),
        (LABELS, b"\0\0\x08\x03\0\0", "-ubyte is no IDX file of unsigned bytes"),
        (LABELS, b"\0\0\x08\0", "-ubyte is damaged: its header says ()"),
        (LABELS, b"\0\0\x08\x01\xff\xff\xff\xff", "-ubyte is damaged: its header says"),
        (LABELS, b"", "-ubyte is no IDX file of unsigned bytes"),
        (LABELS, b"\0\0\x08\x01\0\0\0\x01\0", "must have images of 28 x 28 and as many labels"),
        (LABELS, bytes(500_001), "-ubyte must hold at most 500000 bytes"),
        (SPEECH, b"no archive", "recordings.tar.xz cannot be read"),
        (SPEECH, packed(tones())[:-500], "recordings.tar.xz cannot be read: it ends too early"),
        (SPEECH, packed(tones(), "gz")[:-500], "recordings.tar.xz cannot be read"),
        (SPEECH, backwards(), "recordings.tar.xz cannot be read"),
        (SPEECH, packed({}), "must have recordings such as recordings/7_theo_3.wav"),
        (SPEECH, recorded(bob=b"RIFF"), "3_bob_5.wav of fsdd cannot be read: it ends"),
        (SPEECH, recorded(bob=wav(np.ones(8)).replace(b"\x10\0\0\0", b"$\0\0\0", 1)),
         "3_bob_5.wav of fsdd cannot be read"),
        (SPEECH, recorded(bob=wav(np.ones(8), 2)), "got 2, 16 and 8000"),
        (SPEECH, recorded(bob=wav(np.ones(8), rate=4)), "got 1, 16 and 4"),
        (SPEECH, recorded(bob=wav(np.zeros(8))), "got 8 samples of silence"),
        (f"{TEXT}/test.txt", b"w1 w2 whale\n", "'whale' is not there"),
        (f"{TEXT}/valid.txt", b"w1 \xff\n", "cannot be read as text"),
        (f"{TEXT}/valid.txt", b" \n", "must hold text, and has no words"),
        (f"{TEXT}/train.txt.xz", b"w1", "train.txt.xz cannot be read"),
        (f"{TEXT}/train.txt.xz", lzma.compress(b"w1 w2\n" * 99)[:-30], "it ends too early"),
        (f"{TEXT}/train.txt.xz", lzma.compress(b"w1 " * 20_000), "must hold at most 50000 bytes"),
        (f"{TEXT}/test.txt", b"w1 " * 20_000, "must hold at most 50000 bytes"),
    ],
)  # fmt: skip
def test_damaged_files_are_named(data_sets, tmp_path, monkeypatch, file, content, sentence):
    monkeypatch.setattr(words, "_MOST_BYTES", 50_000)
    monkeypatch.setattr(fashion_mnist, "_MOST_BYTES", 500_000)
    load = {"fashion_mnist": fashion_mnist.load, "fsdd": fsdd.load}
    name = file.partition("/")[0]
    (tmp_path / name).mkdir()
    if content is not None:
        for path in (data_sets / name).iterdir():
            (tmp_path / name / path.name).write_bytes(path.read_bytes())
        (tmp_path / f"{file}.gz").unlink(missing_ok=True)
        (tmp_path / file).write_bytes(content)
    with pytest.raises(UserError, match=re.escape(sentence)):
        load.get(name, partial(words.load, name))(str(tmp_path))


def test_an_idx_file_of_too_many_dimensions_is_one_sentence(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"\0\0\x08\x41" + b"\0\0\0\1" * 65 + b"\0")
    with pytest.raises(UserError, match="is damaged: its header says"):
        fashion_mnist.read_idx(path)
