"""The contract of resuming, which every trainer, study, search and experiment passes.

A test class inherits `ResumeContract` and defines `start`, `resume` and `results`; the rest has
defaults. A job that was stopped at any moment and resumed comes to the bits of one that was not.
"""

import os
import shutil

import pytest

from tests.helpers import refused


class Killed(BaseException):
    """The process ends here: nothing of the product catches it."""


class ResumeContract:
    """Tests of one kind of job; `out` is its directory."""

    kills = (2, 4)
    """Number of files that are renamed into place before the process ends."""

    def start(self, out, *, part=False):
        """Run the job from the beginning, all of it or a first part; returns the exit status."""
        raise NotImplementedError

    def resume(self, out, *changes):
        """Run the rest of the job, with settings changed; returns the exit status."""
        raise NotImplementedError

    def results(self, out):
        """Everything that the job came to, to be compared by ==."""
        raise NotImplementedError

    def start_and_kill(self, out, after):
        """Start the job, and kill it after a number of files were renamed into place."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "replace", _killing_after(after))
            with pytest.raises(Killed):
                self.start(out)

    def has_begun(self, out):
        """Whether the job can be resumed; if not, it is started again."""
        return (out / "config.yaml").is_file()

    def checkpoints(self, out):
        """Files that the job resumes from, oldest first; none where damage has no older one."""
        return []

    refusals = ()
    """Pairs of the changes with which `resume` must be refused, and the sentence."""

    @pytest.fixture(scope="class")
    @classmethod
    def whole(cls, tmp_path_factory):
        """An uninterrupted job."""
        out = tmp_path_factory.mktemp("whole") / "out"
        assert cls().start(out) == 0
        return out

    @pytest.fixture
    def copy(self, whole, tmp_path):
        """A copy of it, to be changed."""
        shutil.copytree(whole, tmp_path / "copy")
        return tmp_path / "copy"

    def test_a_resumed_job_equals_an_uninterrupted_one(self, whole, tmp_path):
        out = tmp_path / "out"
        assert self.start(out, part=True) == 0
        assert self.resume(out) == 0
        assert self.results(out) == self.results(whole)

    def test_a_kill_loses_nothing(self, whole, tmp_path):
        for kill in self.kills:
            out = tmp_path / str(kill)
            self.start_and_kill(out, kill)
            assert (self.resume(out) if self.has_begun(out) else self.start(out)) == 0
            assert self.results(out) == self.results(whole)

    def test_a_finished_job_is_left_as_it_is(self, whole, copy):
        assert self.resume(copy) == 0
        assert self.results(copy) == self.results(whole)

    def test_other_settings_are_refused(self, whole, copy, capsys):
        for changes, sentence in self.refusals:
            refused(capsys, lambda words: self.resume(copy, *words), changes, sentence)
        assert self.results(copy) == self.results(whole)

    def test_damage_to_the_newest_checkpoint_names_the_one_before(self, copy, capsys):
        found = self.checkpoints(copy)
        if not found:
            pytest.skip("it resumes from one file")
        found[-1].write_bytes(found[-1].read_bytes()[:200])
        refused(
            capsys, lambda words: self.resume(copy, *words), [],
            f"{found[-1]} is not a complete safetensors file", f" is {found[-2]}: ",
        )  # fmt: skip
        assert found[-1].stat().st_size == 200


def _killing_after(count):
    replace, done = os.replace, 0

    def replaced(*arguments):
        nonlocal done
        replace(*arguments)
        done += 1
        if done == count:
            raise Killed

    return replaced
