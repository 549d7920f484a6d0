"""Small data sets in the files that the real ones have, and helpers of these tests."""

import csv
import gzip
import io
import lzma
import tarfile
import wave

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.task import Learning

WORDS = [f"w{number}" for number in range(10)]
SPEAKERS, TAKES = ("ann", "bob"), (0, 4, 5, 6, 7)


def write_idx(path, array):
    """An IDX file of unsigned bytes, packed."""
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


def brighter(labels, draw):
    """Images the brighter, the greater the class."""
    return labels[:, None, None] * 25 + draw.integers(0, 20, (len(labels), 28, 28))


def write_clothes(folder, train, test, pictures=brighter):
    """The four files of Fashion-MNIST: a number of images, whose classes alternate."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    for part, count in (("train", train), ("t10k", test)):
        labels = np.arange(count) % 10
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", pictures(labels, draw))
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)


def story(tokens, seed):
    """A word mostly follows the one before it by number; lines of nine words."""
    draw = np.random.default_rng(seed)
    numbers = np.cumsum(draw.choice([1, 1, 1, 1, 4], tokens)) % len(WORDS)
    lines = [numbers[i : i + 9] for i in range(0, tokens, 9)]
    return "".join(" " + " ".join(WORDS[n] for n in line) + " \n" for line in lines)


def write_stories(data, held_out=400):
    """The files of WikiText-2 in a folder of `data`, packed or not as a user may have them."""
    folder = data / "wikitext2"
    folder.mkdir(parents=True)
    (folder / "train.txt.xz").write_bytes(lzma.compress(story(3000, 0).encode()))
    (folder / "valid.txt").write_text(story(held_out, 1))
    (folder / "test.txt").write_text(story(held_out, 2))
    return folder


def wav(samples, channels=1, width=2, rate=8000):
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(width)
        out.setframerate(rate)
        out.writeframes(samples.astype(f"<i{width}").tobytes())
    return file.getvalue()


def tones(takes=TAKES):
    """A different tone for every digit, 0.1 s, by each speaker."""
    time = np.arange(800) / 8000
    return {
        f"{digit}_{speaker}_{take}.wav": wav(
            (9000 + take) * np.sin(2 * np.pi * (300 + 350 * digit + 20 * place) * time)
        )
        for digit in range(10)
        for place, speaker in enumerate(SPEAKERS)
        for take in takes
    }


def packed(files, form="xz", top="recordings"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{form}") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def write_recordings(folder, content):
    """The archive of the Free Spoken Digit Dataset in `folder`, which is given back as text."""
    (folder / "fsdd").mkdir(exist_ok=True)
    (folder / "fsdd" / "recordings.tar.xz").write_bytes(content)
    return str(folder)


def table_in(out):
    """Rows of an experiment's table."""
    return [*csv.DictReader((out / "table.csv").read_text().splitlines())]


def refused(words, capsys):
    """The one sentence with which the command refuses its arguments."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def resumes(learn, settings, data, tmp_path, target, at, watch=lambda *given: None):
    """Training that is interrupted at a call of a module's function comes to the same numbers."""

    def learned(name):
        (tmp_path / name).mkdir(exist_ok=True)
        return learn(Learning(settings, 0, tmp_path / name, data=data))

    whole, honest, calls = learned("a"), getattr(*target), []

    def stopping(*given, **named):
        calls.append(given)
        if len(calls) == at:
            raise KeyboardInterrupt
        watch(*given)
        return honest(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*target, stopping)
        with pytest.raises(KeyboardInterrupt):
            learned("b")
    return learned("b") == whole
