"""Signals, exit status and closed output of every command.

The package loads this file first, and it loads nothing that takes time, so that Control-C is
handled while a command loads."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

_ANSWERS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "stopped, as its terminal was closed",
}
_GRACE_S = 3.0
"""How long a command may take to stop; a signal after that ends it at once, one before is idle."""


class Interrupted(KeyboardInterrupt):
    """Raised when a signal asks the command to stop."""

    def __init__(self, signum: int) -> None:
        super().__init__()
        self.status = 128 + signum


def interrupted_status(error: BaseException) -> int:
    """The exit status of a command stopped by this signal: 128 + its number, as in shells."""
    status: int = getattr(error, "status", 128 + signal.SIGINT)
    return status


class _Signals:
    """Handles the signals in `_ANSWERS`: in a running command each is raised once, as Interrupted;
    before and after that, when nothing can be lost, it ends the process."""

    running = False
    received = 0
    since = 0.0

    def answer(self, signum: int, frame: Any) -> None:
        now = time.monotonic()
        if self.received and now - self.since < _GRACE_S:
            return
        if self.received or not self.running:
            if sys.__stderr__ is not None:  # else descriptor 2 may be another file's
                with contextlib.suppress(OSError):  # its terminal is gone
                    os.write(2, f"{_ANSWERS[signal.Signals(signum)]}\n".encode())
            os._exit(128 + signum)
        self.received, self.since = signum, now
        raise Interrupted(signum)

    def install(self) -> dict[signal.Signals, Any]:
        """Handle the signals that would end Python; returns their previous handlers. Signals that
        the program or its parent ignores or handles stay so, as do all in a worker process."""
        import threading

        worker = getattr(sys.modules.get("multiprocessing"), "parent_process", lambda: None)()
        if worker is not None or threading.current_thread() is not threading.main_thread():
            return {}
        usual = (signal.SIG_DFL, signal.default_int_handler)
        found = {each: signal.getsignal(each) for each in _ANSWERS}
        before = {each: handler for each, handler in found.items() if handler in usual}
        for each in before:
            signal.signal(each, self.answer)
        return before

    def ignore(self) -> None:
        """Ignore the signals from now on: the command has ended."""
        for each in _ANSWERS:
            if signal.getsignal(each) == self.answer:
                signal.signal(each, signal.SIG_IGN)


_signals = _Signals()


def command_name() -> str | None:
    """The module that runs as a command or as a console script; None in another program."""
    words = sys.orig_argv
    if "--multiprocessing-fork" in words:  # a worker process has its parent's sys.argv
        return None
    if sys.argv[:1] == ["-m"] and "-m" in words[:-1]:  # while its parent packages are loaded
        return words[words.index("-m") + 1].removeprefix("foveate.")
    name = sys.argv[0].rpartition("/")[2] if sys.argv else ""
    if not name.startswith("foveate-"):
        return None
    command = name.removeprefix("foveate-")
    return f"deploy.{command}" if command == "export" else f"training.{command}"


def open_command(module: str) -> int:
    """Run the `main` of a module under its real name, by which other processes can import it."""
    from importlib import import_module

    status: int = import_module(module).main()
    return status


def exit_status(command: Callable[[], int]) -> int:
    """Run a command line: its status, or 2 after printing a UserError.

    130 after Control-C, 143 after SIGTERM and 129 after SIGHUP, which the command sees as
    KeyboardInterrupt; 141 = 128 + SIGPIPE, as in other programs, if the reader of its output closed
    it. Within another command KeyboardInterrupt is left to that one.
    """
    if _signals.running:
        return _status(command)
    if sys.stderr is None:  # closed by the caller, as in `2>&-`
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, open as long as the process
    before, report = _signals.install(), sys.unraisablehook
    try:
        return _interruptible(command)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            status = interrupted_status(error)
        elif _signals.received:  # whatever exception a library turned it into
            status = 128 + _signals.received
        else:
            raise
        _print_error(_ANSWERS[signal.Signals(status - 128)])
        return status
    finally:
        sys.unraisablehook = report
        _signals.received = 0
        for each, handler in before.items():
            signal.signal(each, handler)
        if not before:
            _signals.ignore()  # the interpreter is shutting down


def _interruptible(command: Callable[[], int]) -> int:
    """Like `exit_status`, but raises Interrupted, at any line of the command."""
    _signals.running = True
    try:
        sys.unraisablehook = _repeating(sys.unraisablehook)
        try:
            return _status(command)
        finally:
            if sys.stdout is not None:  # as where it is closed from the beginning
                sys.stdout.flush()  # at exit it would be too late to see that it fails
    except BrokenPipeError:
        if not _drop_closed_streams():
            raise  # another pipe's
        return 141
    except OSError as error:  # of the output: `_status` has answered others
        if _signals.received:  # such as SIGHUP, whose terminal is gone
            _drop_output()
            raise
        return _output_failed(error)
    finally:
        _signals.running = False


def _status(command: Callable[[], int]) -> int:
    from foveate_extras import MissingExtraError
    from training.command.errors import UserError
    from training.command.files import refusal

    try:
        return command()
    except BrokenPipeError:
        raise
    except (UserError, MissingExtraError, OSError, MemoryError) as error:
        if _signals.received:
            raise
        if isinstance(error, UserError | MissingExtraError):
            _print_error(f"error: {' '.join(str(error).split())}")
            return 2
        try:  # an OSError of any library may be that of the output
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as of_output:
            return _output_failed(of_output)
        _print_error(f"error: {refusal(error)}")
        return 2


def _output_failed(error: OSError) -> int:
    _drop_output()
    _print_error(f"error: the output cannot be written: {error.strerror or error}")
    return 2


def _drop_output() -> None:
    """Discards the rest of the output, so that exiting is silent."""
    with contextlib.suppress(OSError):  # it has no descriptor, under a test say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(line: str) -> None:
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        pass  # its terminal is gone


def _repeating(report: Callable[[Any], Any]) -> Callable[[Any], None]:
    """A hook for exceptions that Python ignores, as in finalizers: an interrupt is sent again."""
    import threading

    main = threading.main_thread().ident
    assert main is not None

    def report_or_repeat(ignored: Any) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            again = _signals.received or signal.SIGINT
            _signals.received = 0
            threading.Timer(0.05, signal.pthread_kill, (main, again)).start()
        else:
            report(ignored)

    return report_or_repeat


def _drop_closed_streams() -> bool:
    """Whether the reader of our output closed it; discards the rest, so that exiting is silent."""
    import select

    closed = False
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError):  # it has no descriptor, under a test say
            pipe, poll = stream.fileno(), select.poll()
            poll.register(pipe, 0)
            if any(event & select.POLLERR for _, event in poll.poll(0)):
                closed = True
                os.dup2(os.open(os.devnull, os.O_WRONLY), pipe)
    return closed


if (command_name() or "").partition(".")[0] in ("training", "benchmarks", "deploy"):
    _signals.install()
