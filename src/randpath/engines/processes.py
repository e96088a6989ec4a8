"""Processes: calls on several processes at once, which survives their death and their silence.

A worker is spawned once and kept; it takes one call at a time. The call depends on its arguments alone, so one that is
lost with its worker is simply made again, and the number of workers cannot change a result.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import copyreg
import io
import multiprocessing
import os
import queue
import signal
import statistics
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeVar

from randpath.engines import waiting
from randpath.engines.serial import Tick, quiet
from randpath.errors import UsageError, WorkerLost

A = TypeVar("A")
R = TypeVar("R")

ATTEMPTS = 3  # how often one call may lose its worker before the run fails
SILENCE = 300.0  # seconds without a sign of life that count as hung
STARTUP = 60.0  # at least so long for the first sign: importing torch on a busy machine takes its time
PATIENCE = 10.0  # seconds for the workers to reach their next step when all is to stop


class ByValue(ForkingPickler):
    """multiprocessing's own transport, without the rules torch adds to it.

    Those would move tensors to shared memory, where one process trains on the weights of another.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.dispatch_table = copyreg.dispatch_table.copy()


def _send(pipe: Connection, message: object) -> None:
    buffer = io.BytesIO()
    # Pickle fully before sending: an unpicklable object raises here instead of leaving half a message in the pipe.
    ByValue(buffer).dump(message)
    pipe.send_bytes(buffer.getbuffer())


# ---- in the worker


class _Link:
    """A worker's end: where its signs of life go, and whence it hears that all is to stop."""

    def __init__(self, pipe: Connection, control: Connection) -> None:
        self.pipe, self.control = pipe, control
        self.begin(0)

    def begin(self, number: int) -> None:
        self.number, self.steps, self.last = number, 0, -1.0

    def beat(self, done: float) -> None:
        now = time.monotonic()
        self.steps += 1
        if now - self.last < 1:
            return
        step = 0.0 if self.last < 0 else (now - self.last) / self.steps
        _send(self.pipe, ("beat", (step, done), time.process_time()))
        self.steps, self.last = 0, now
        while self.control.poll():
            number, reason = self.control.recv()
            if number == self.number:
                raise reason


_link: _Link | None = None  # set in a worker, and nowhere else
worker = 0  # the number of this worker among its engine's, from 0; set in a worker alone


def _heartbeat(done: float) -> None:
    """A call's tick: say which share of it is done, at most once a second. Raises what stopped the parent, if so."""
    assert _link is not None
    _link.beat(done)


def _serve(pipe: Connection, control: Connection, place: int) -> None:
    """The life of a worker."""
    global _link, worker
    worker = place
    # Ctrl-C and a terminated process group reach us too, but the parent decides; it ends us with SIGKILL, if it must
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _link = _Link(pipe, control)
    while True:
        try:
            number, function, argument = pipe.recv()
            _link.begin(number)
            answer: tuple[str, object, float] = ("done", function(argument, _heartbeat), time.process_time())
        except BaseException as error:
            error.add_note("In a worker:\n" + traceback.format_exc())
            answer = ("raised", error, time.process_time())
        try:
            _send(pipe, answer)
        except OSError:  # the parent is gone, or has closed
            return
        except Exception as error:
            text = f"the {'result' if answer[0] == 'done' else 'error'} of a worker cannot be sent: {error}"
            _send(pipe, ("raised", TypeError(text), time.process_time()))
        del answer
        function = argument = None  # memory for the next one


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# ---- in the parent


class _Worker:
    """A process and the thread that talks to it: sending to a stopped process may block, and must not block the run."""

    def __init__(
        self, context: SpawnContext, reports: queue.SimpleQueue[tuple[_Worker, str, int, Any]], place: int
    ) -> None:
        self.place = place  # among the engine's workers, from 0
        self.pipe, pipe = context.Pipe()
        control, self.control = context.Pipe(duplex=False)
        self.process = context.Process(target=_serve, args=(pipe, control, place), name="randpath-worker")
        with waiting.asleep():
            self.process.start()
        pipe.close()
        control.close()
        self.reports = reports
        self.tasks: queue.SimpleQueue[tuple[int, object, object] | None] = queue.SimpleQueue()
        self.number = 0  # of the call it is on; 0: idle
        self.index = -1  # of that call's result
        self.heard = self.done = 0.0  # when, and which share of the call
        self.cpu_seconds = 0.0  # of its life, as last told
        self.steps: collections.deque[float] = collections.deque(maxlen=100)
        threading.Thread(target=self._talk, daemon=True).start()

    def begin(self, number: int, index: int, function: object, argument: object) -> None:
        self.number, self.index = number, index
        self.heard, self.done = time.monotonic(), 0.0
        self.steps.clear()
        self.tasks.put((number, function, argument))

    def silent(self, silence: float) -> float:
        """Seconds of silence, if they are too many; else 0."""
        limit = max(silence, 10 * statistics.median(self.steps)) if self.steps else max(silence, STARTUP)
        seconds = time.monotonic() - self.heard
        return seconds if seconds > limit else 0.0

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.tasks.put(None)
        self.control.close()

    def _talk(self) -> None:
        while (task := self.tasks.get()) is not None:
            try:
                _send(self.pipe, task)
                kind = "beat"
                while kind == "beat":
                    kind, value, self.cpu_seconds = self.pipe.recv()
                    self.reports.put((self, kind, task[0], value))
            except (EOFError, OSError):
                self.reports.put((self, "lost", task[0], None))
            except Exception as error:  # something that cannot travel
                self.reports.put((self, "raised", task[0], error))


class Processes:
    """An engine of several processes: `with Processes(2) as engine: list(engine.map(function, arguments))`.

    A worker that dies, or is silent for max(10 x its median step, `silence` seconds), is replaced and its call made
    again; the third loss of one call is WorkerLost. An exception of `function` is raised here. `tick` is told the share
    that is done, several times a second: when it raises, the workers raise the same at their next heartbeat, and have
    ten seconds to save.
    """

    def __init__(self, processes: int, silence: float = SILENCE, tick: Tick = quiet) -> None:
        if processes < 1:
            raise UsageError(f"{processes} processes can do nothing")
        self.processes, self.silence, self.tick = processes, silence, tick
        self._context = multiprocessing.get_context("spawn")
        self._reports: queue.SimpleQueue[tuple[_Worker, str, int, Any]] = queue.SimpleQueue()
        self._workers: list[_Worker] = []
        self._number = 0
        self._spent = 0.0  # by workers that have ended
        atexit.register(self.close)

    def map(self, function: Callable[[A, Tick], R], arguments: Iterable[A]) -> Iterator[R]:
        """function(argument, tick) for each argument, in their order, when all are there."""
        calls = list(arguments)
        results: dict[int, R] = {}
        causes: list[list[str]] = [[] for _ in calls]
        todo = collections.deque(range(len(calls)))
        try:
            while len(results) < len(calls):
                for worker in self._idle(len(todo)):
                    self._number += 1
                    index = todo.popleft()
                    worker.begin(self._number, index, function, calls[index])
                for worker, kind, value in self._hear():
                    index, worker.number = worker.index, 0
                    if kind == "done":
                        results[index] = value
                    elif kind == "raised":
                        raise value
                    else:
                        self._end(worker)
                        causes[index].append(value)
                        if len(causes[index]) == ATTEMPTS:
                            raise WorkerLost(
                                f"call {index + 1} of {len(calls)} failed: {', then '.join(causes[index])}"
                            )
                        todo.appendleft(index)
                at_work = sum(worker.done for worker in self._workers if worker.number)
                self.tick((len(results) + at_work) / len(calls))
        except BaseException as reason:
            self._stop(reason)
            raise
        return iter([results[index] for index in range(len(calls))])

    @property
    def cpu_seconds(self) -> float:
        """User and system time of all workers so far, as last told: at least once a second, and with each result."""
        return self._spent + sum(worker.cpu_seconds for worker in self._workers)

    def _idle(self, wanted: int) -> list[_Worker]:
        """At most `wanted` workers with nothing to do, started where they are missing."""
        for worker in [worker for worker in self._workers if not worker.number]:
            if worker.process.exitcode is not None:  # died in its sleep
                self._end(worker)
        idle = [worker for worker in self._workers if not worker.number]
        while len(idle) < wanted and len(self._workers) < self.processes:
            free = min(set(range(self.processes)) - {worker.place for worker in self._workers})
            self._workers.append(_Worker(self._context, self._reports, free))
            idle.append(self._workers[-1])
        return idle[:wanted]

    def _hear(self) -> Iterator[tuple[_Worker, str, Any]]:
        """What ended within a moment: (worker, "done" or "raised" or "lost", result or error or cause)."""
        with contextlib.suppress(queue.Empty):
            worker, kind, number, value = self._reports.get(timeout=0.2)
            if worker in self._workers and number == worker.number:
                worker.heard = time.monotonic()
                if kind == "beat":
                    step, worker.done = value
                    worker.steps.append(step)
                elif kind == "lost":
                    worker.process.join(5)
                    yield worker, "lost", _cause(worker.process.exitcode)
                else:
                    yield worker, kind, value
        for worker in [worker for worker in self._workers if worker.number]:
            if worker.process.exitcode is not None and time.monotonic() - worker.heard > 1:
                yield worker, "lost", _cause(worker.process.exitcode)  # its children keep the pipe open
            elif seconds := worker.silent(self.silence):
                yield worker, "lost", f"silent for {seconds:.0f} s"

    def _stop(self, reason: BaseException) -> None:
        """Let the others come to their next step, where they save and stop; end those who do not."""
        for worker in [worker for worker in self._workers if worker.number]:
            with contextlib.suppress(OSError):
                try:
                    _send(worker.control, (worker.number, reason))
                except (AttributeError, TypeError, ValueError):  # a reason that cannot travel
                    _send(worker.control, (worker.number, KeyboardInterrupt()))
        deadline = time.monotonic() + PATIENCE
        while any(worker.number for worker in self._workers) and time.monotonic() < deadline:
            for worker, kind, _ in self._hear():
                worker.number = 0
                if kind == "lost":
                    self._end(worker)
        for worker in [worker for worker in self._workers if worker.number]:
            self._end(worker)

    def _end(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.end()
        self._spent += worker.cpu_seconds

    def close(self) -> None:
        """End the workers."""
        atexit.unregister(self.close)
        for worker in list(self._workers):
            self._end(worker)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cause(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        name = signal.Signals(-exitcode).name
        return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"its process left with code {exitcode}"
