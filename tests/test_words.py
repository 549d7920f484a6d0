"""The measure of sentences, and the pages that keep to it."""

from statistics import median

import pytest

from tests import words

PAGES = [str(path.relative_to(words.ROOT)) for path in words.covered()]


def texts(page: str) -> list[str]:
    return [sentence.text for sentence in words.sentences(page)]


@pytest.mark.parametrize("name", PAGES)
def test_sentences_are_short(name: str) -> None:
    page = words.sentences(words.read(words.ROOT / name))
    assert [s for s in page if s.words > words.LONGEST_WORDS] == []
    assert not page or median(s.words for s in page) <= words.MEDIAN_WORDS


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("One is here. Two is there.", ["One is here.", "Two is there."]),
        ("Is it? Yes! (It is.) So.", ["Is it?", "Yes!", "(It is.)", "So."]),
        ("Maps, e.g. trig, i.e. sines vs. cosines.", ["Maps, e.g. trig, i.e. sines vs. cosines."]),
        ("Some (e.g. One) more.", ["Some (e.g. One) more."]),
        ("Cats, dogs etc. are pets.", ["Cats, dogs etc. are pets."]),
        ("Cats, dogs etc. Birds too.", ["Cats, dogs etc.", "Birds too."]),
        ("By Yang et al. (2024). It holds.", ["By Yang et al. (2024).", "It holds."]),
        ("See Fig. 3 and Eq. 12. No. It is not.", ["See Fig. 3 and Eq. 12.", "No.", "It is not."]),
        ("At 0.5 it is 1.25. At 2.0. .95 too.", ["At 0.5 it is 1.25.", "At 2.0.", ".95 too."]),
        ("The file a.yaml or `b.yaml` holds it.", ["The file a.yaml or `b.yaml` holds it."]),
        ("Take `pip install x. y`. `fit` fits.", ["Take `pip_install_x._y`.", "`fit` fits."]),
        ("A kernel phi(x) . phi(y) of both.", ["A kernel phi(x) . phi(y) of both."]),
        ("It grows with m. The rest is A. So.", ["It grows with m.", "The rest is A.", "So."]),
        ("It goes on ... and on... and on.", ["It goes on ... and on... and on."]),
        ("**It is so.** That is *why.* Yes.", ["It is so.", "That is *why.*", "Yes."]),
        ("A colon: no end.", ["A colon: no end."]),
        ("Three things:\n* one\n* two,\n  in full", ["Three things:", "one", "two, in full"]),
        ("1. First\n2. Second\n\nThird", ["First", "Second", "Third"]),
        ("It was in\n2021. Then it went.", ["It was in 2021.", "Then it went."]),
        ("Numbers:\n| a | b |\n|---|---|\n| No. | It. |\n\nAfter.", ["Numbers:", "After."]),
        ("# No. Title\n\nText.\n\n---\n\n## Another", ["Text."]),
        ("Text:\n```py\nno = 1. # It is.\n```\nMore.", ["Text:", "More."]),
        ("~~~~\nno\n~~~\nno\n~~~~\nYes.\n\n    no\n", ["Yes."]),
        ("Here. <!-- Not.\nHere. --> There.", ["Here.", "There."]),
        ("See [a page. Of\nours](b.md#c. D) now.", ["See [a page.", "Of ours] now."]),
        ("![No. Picture](a.png)\n\n[a]: b.md\n\n* [Only a link](#a)\n\n> A quote.", ["A quote."]),
    ],
)
def test_prose_is_cut_into_sentences(page: str, found: list[str]) -> None:
    assert texts(page) == found


def test_sentences_know_their_words_and_lines() -> None:
    page = (
        "# Title\n\nOne `two three` - [four\nfive](no.md). Six\n\n<!-- a\nb -->\n* seven +- 8 %\n"
    )
    found = [(s.line, s.words) for s in words.sentences(page)]
    assert found == [(3, 4), (4, 1), (8, 2)]


def test_a_page_with_a_long_sentence_fails(tmp_path, capsys) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"Short.\n\nThe {'very ' * 28}end.\n")
    assert words.main([str(page)]) == 0
    assert capsys.readouterr().out == f"{page}: 2 sentences, median 15.5 words, longest 30\n"
    page.write_text(f"Short.\n\nThe {'very ' * 29}end.\n")
    assert words.main([str(page)]) == 1
    out, error = capsys.readouterr()
    assert f"  {page}:3: 31 words: The very" in out
    assert error == f"{page}: a sentence of 31 words, at most 30 are allowed\n"


def test_the_median_of_readme_counts(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(words, "ROOT", tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text("Word. " + "It is so " * 5 + ".\n")
    assert words.main([str(readme)]) == 0
    readme.write_text("It is so " * 5 + ".\n")
    assert words.main([str(readme)]) == 1
    assert "README.md: a median of 15 words, at most 14 are allowed" in capsys.readouterr().err


def test_all_pages_are_covered() -> None:
    assert PAGES[:3] == ["README.md", "CONTRIBUTING.md", "examples/README.md"]
    assert {"docs/README.md", "docs/attention.md"} < set(PAGES)
    assert "docs/notebooks/train_a_policy.ipynb" in PAGES
