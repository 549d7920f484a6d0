"""Pools of workers: order, exceptions, and one answer to a worker that dies."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.training.background import ROOT, wait_for
from tests.training.pool_workers import Holding, Odd, Squares, squared_by_two
from training.collect import pool, processes
from training.collect.pool import InProcessPool, WorkerDiedError, open_pool
from training.collect.processes import ProcessPool, open_processes
from training.io.config import UserError


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A pool of two processes."""
    mark = str(tmp_path_factory.mktemp("pool") / "mark")
    with closing(ProcessPool(partial(Squares, mark), 2)) as workers:
        yield workers


def values(outcomes):
    return [value for value, _ in outcomes]


def test_one_worker_is_this_process():
    with closing(open_pool(Squares, 1)) as workers:
        assert isinstance(workers, InProcessPool)
        assert workers.run([1, 2]) == [(1, os.getpid()), (4, os.getpid())]


def test_outcomes_come_in_the_order_of_the_tasks(two):
    outcomes = two.run(range(20))
    assert values(outcomes) == [n * n for n in range(20)]
    assert os.getpid() not in {pid for _, pid in outcomes}
    assert two.run([]) == []


def test_exceptions_come_back_and_the_pool_goes_on(two):
    with pytest.raises(LookupError) as raised:
        two.run([1, 2, -1, 3, 4])
    assert raised.value.args == ("nothing", 7)
    assert "in run" in raised.value.__notes__[0]
    assert values(two.run([5, 6])) == [25, 36]
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        two.run([-5])
    with pytest.raises((AttributeError, RuntimeError), match=r"(pickle|get local object).*lambda"):
        two.run([-4])
    assert values(two.run([5])) == [25]


def test_a_killed_worker_is_replaced_and_its_task_runs_again(two):
    assert values(two.run([1, -3, 3])) == [1, 9, 9]
    assert values(two.run([1, 2])) == [1, 4]


def test_a_task_that_its_workers_die_of_ends_all(two, monkeypatch):
    monkeypatch.setattr(pool, "RETRIES", 1)
    sentence = r"^a worker process died \(killed, or out of memory\), 2 times over -2$"
    with pytest.raises(WorkerDiedError, match=sentence):
        two.run([1, -2, 3])
    assert values(two.run([1, 2])) == [1, 4]


def test_closing_the_iterator_stops_the_tasks_that_run(two):
    with closing(two.as_finished([-6, 2])) as finished:
        assert next(finished)[0] == 1
    assert values(two.run([1, 2])) == [1, 4]


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        (UserError("no such thing"), "no such thing"),
        (KeyError("x"), "a worker cannot start: KeyError: 'x'"),
    ],
)
def test_a_worker_that_cannot_be_built_is_one_sentence(trouble, sentence):
    with (
        closing(ProcessPool(partial(Squares, trouble=trouble), 1)) as workers,
        pytest.raises(UserError) as raised,
    ):
        workers.run([1])
    assert str(raised.value) == sentence


def test_exceptions_that_cannot_be_sent_keep_their_name_and_message():
    error = pool.portable(Odd(1, 2))
    assert type(error) is RuntimeError
    assert str(error) == "Odd: 1 and 2"


def test_closing_leaves_no_process_behind():
    with closing(ProcessPool(Squares, 2)) as workers:
        ((nine, worker),) = workers.run([3])
    assert nine == 9
    assert not os.path.exists(f"/proc/{worker}")


@pytest.mark.parametrize("task", ["patient", pytest.param("stubborn", marks=pytest.mark.records)])
def test_a_worker_is_asked_to_close_and_killed_if_it_does_not(task, tmp_path, monkeypatch):
    """As after Control-C, so that no simulator of an environment stays alive."""
    monkeypatch.setattr(processes, "_PATIENCE_S", 1.0 if task == "stubborn" else 30.0)
    with (
        closing(ProcessPool(partial(Holding, str(tmp_path)), 2)) as workers,
        closing(workers.as_finished([task, None])) as finished,
    ):
        assert next(finished)[0] == 1
        (process,) = [one.process for one in workers.handles if one.index == 0]
    assert process.poll() == (143 if task == "patient" else -9)
    assert (tmp_path / f"closed {process.pid}").exists() == (task == "patient")


@pytest.mark.records
def test_a_worker_closes_when_its_parent_is_killed(tmp_path):
    program = (
        "from functools import partial; from training.collect.processes import ProcessPool; "
        "from tests.training.pool_workers import Holding; "
        f"ProcessPool(partial(Holding, {str(tmp_path)!r}), 1).run([1])"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    wait_for((tmp_path / "begun 1").exists, seconds=30)
    parent.kill()
    parent.wait()
    wait_for(lambda: list(tmp_path.glob("closed *")), seconds=30)


def test_large_tasks_and_outcomes_pass(two):
    number = 1 << 8_000_000  # a megabyte
    assert values(two.run([number])) == [number * number]


UNGUARDED = """
from training.collect.processes import ProcessPool
from tests.training.pool_workers import Squares

workers = ProcessPool(Squares, 2)
print([value for value, _ in workers.run([3, 4])])
workers.close()
"""


@pytest.mark.records
def test_a_program_of_ones_own_needs_no_guard(tmp_path):
    (tmp_path / "program.py").write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("[9, 16]\n", "")


PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[1])
from training.collect.processes import open_processes

if __name__ == "__main__":
    pool = open_processes(2)
    waiting = [pool.submit(time.sleep, 100) for _ in range(2)]
    print(*pool._processes, flush=True)
    time.sleep(100)
"""


def test_a_daemonic_process_may_have_workers():
    with multiprocessing.get_context("spawn").Pool(1) as daemonic:
        assert daemonic.apply(squared_by_two, (7,)) == 49


def test_processes_begin_as_asked():
    with open_processes(1, sys.setrecursionlimit, 4321) as pool:
        assert pool.submit(sys.getrecursionlimit).result() == 4321


@pytest.mark.records
def test_a_killed_parent_leaves_no_process_behind(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    parent = subprocess.Popen(
        [sys.executable, str(program), str(ROOT)], stdout=subprocess.PIPE, text=True
    )
    children = [Path("/proc") / pid for pid in parent.stdout.readline().split()]
    assert len(children) == 2
    assert all(child.exists() for child in children)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not any(child.exists() for child in children), seconds=30)


def test_a_worker_that_stands_still_is_reported_and_goes_on(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv(pool.QUIET_S, "0.5")
    with closing(open_pool(partial(Squares), 2)) as two:
        (_, pid), _ = two.run([1, 2])
        os.kill(pid, signal.SIGSTOP)
        results = two.as_finished([3, 4, 5])
        threading.Timer(2.0, os.kill, (pid, signal.SIGCONT)).start()
        assert sorted(value for _, (value, _) in results) == [9, 16, 25]
    said = capfd.readouterr().err
    assert f"note: a worker (process {pid}) has not answered for 0.5 s, over " in said
    assert pool.QUIET_S in said


@pytest.mark.parametrize("given", ["0", "soon", "nan"])
def test_a_quiet_time_that_is_none_is_refused(given, monkeypatch):
    monkeypatch.setenv(pool.QUIET_S, given)
    sentence = f"must be a number above 0, got '{given}'"
    with closing(open_pool(partial(Squares), 2)) as two, pytest.raises(UserError, match=sentence):
        two.run([1])


def test_no_worker_is_forked_from_a_process_with_threads():
    """A fork copies locks that other threads hold; each worker is a new interpreter."""
    lock = threading.Lock()
    with lock, closing(open_pool(partial(Squares), 2)) as two, processes.open_processes(1) as other:
        assert two.run([7])[0][0] == 49
        assert other.submit(pow, 7, 2).result(60) == 49
        for pid in {pid for _, pid in two.run([1, 2])} | {*other._processes}:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            assert b"serve(" in command or b"spawn_main" in command
