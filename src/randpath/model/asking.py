"""One model for many askers: what comes in meanwhile is answered as one batch, by the newest version."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from randpath.data.dataset import Arrays, Dataset, Joined
from randpath.data.decode import decode
from randpath.errors import RandpathError, UsageError
from randpath.model import versions
from randpath.model.answers import answers
from randpath.model.model import Model
from randpath.model.stored import encode_label
from randpath.storage.checkpoint import Saved

AT_ONCE = 64  # pictures in one batch
WAITING = 1000  # pictures that may wait; the next is refused
LOOK = 0.5  # seconds between two looks for a new version


@dataclass(frozen=True)
class Question:
    """A picture, decoded; its file, in case that the model takes another shape meanwhile; and who waits for it."""

    pixels: np.ndarray
    data: bytes
    top: int
    nearest: bool
    answer: "Future[dict[str, Any]]"


class Asker:
    """Holds the newest version of a model directory and answers from one thread."""

    def __init__(self, directory: Path, tell: Callable[[str], object], device: str = "cpu"):
        self.directory, self.tell, self.device = directory, tell, device
        self.questions: queue.Queue[Question | None] = queue.Queue(WAITING)
        self.looked, self.said = time.monotonic(), ""
        self.stamp = versions.stamp(directory)
        self.version, self.model = self._newest()
        if not _takes_pictures(self.model):
            raise UsageError("this model takes feature vectors, not pictures", next="PathClassifier.load, in Python")
        self.exemplars: tuple[Dataset, np.ndarray] | None = None  # with their features; made when they are asked for
        self.thread = threading.Thread(target=self._work, name="ask", daemon=True)
        self.thread.start()

    def ask(self, data: bytes, top: int, nearest: bool = False) -> "Future[dict[str, Any]]":
        """The answer that will come, for the bytes of a picture file; raises PictureError, or queue.Full."""
        pixels = decode(data, _shape(self.model), name="the picture")
        question = Question(pixels, data, top, nearest, Future())
        self.questions.put_nowait(question)
        return question.answer

    def close(self) -> None:
        self.questions.put(None)
        self.thread.join()

    def _work(self) -> None:
        while (first := self._next()) is not None:
            batch = [first]
            with contextlib.suppress(queue.Empty):
                while len(batch) < AT_ONCE:
                    if (more := self.questions.get_nowait()) is None:
                        self.questions.put(None)
                        break
                    batch.append(more)
            self._renew()
            try:
                found = self._answered(batch)
            except Exception as error:  # whoever waits is told; the next batch may do better
                for question in batch:
                    question.answer.set_exception(error)
                continue
            for question, one in zip(batch, found):
                question.answer.set_result(one)

    def _next(self) -> Question | None:
        """The next question; while there is none, a new version is taken up, so that nobody waits for it."""
        while True:
            try:
                return self.questions.get(timeout=LOOK)
            except queue.Empty:
                self._renew()

    def _answered(self, batch: list[Question]) -> list[dict[str, Any]]:
        shape = _shape(self.model)
        pixels = [q.pixels if q.pixels.shape == shape else decode(q.data, shape) for q in batch]
        data = Arrays(np.stack(pixels), np.zeros(len(batch), np.int64))
        found = answers(self.model, data, max(question.top for question in batch))
        for i, (question, one) in enumerate(zip(batch, found)):
            if "top" in one:
                one["top"] = one["top"][: question.top]
            if question.top == 1:
                one.pop("top", None)
            one["version"] = self.version
            if question.nearest:
                one["nearest"] = self._nearest(data.take(np.array([i])))
        return found

    def _nearest(self, picture: Dataset) -> dict[str, Any] | None:
        """The stored picture whose features are nearest, and its name; none where no pictures are kept."""
        parts = list(self.model.method.memory.train.values())
        if not parts or self.model.plan.start is not None:  # with a start it keeps vectors
            return None
        if self.exemplars is None:
            self.exemplars = Joined(parts), self.model.seen(Joined(parts))[1]
        kept, features = self.exemplars
        distance = np.square(features - self.model.seen(picture)[1]).sum(axis=1)
        i = int(distance.argmin())
        pixels = next(kept.batches([np.array([i])]))[0][0].numpy()
        return {"label": encode_label(self.model.names[int(kept.labels[i])]), "pixels": pixels}

    def _renew(self) -> None:
        """Take up a version that was committed meanwhile; one that cannot be read is passed over, and said once."""
        if time.monotonic() - self.looked < LOOK:
            return
        self.looked = time.monotonic()
        try:
            stamp = versions.stamp(self.directory)  # of the newest, which may be damaged: then it is read once
            if stamp != self.stamp:
                version, model = self._newest()
                if _takes_pictures(model):
                    self.version, self.model, self.exemplars = version, model, None
                self.stamp = stamp
            self.said = ""
        except (RandpathError, OSError) as error:
            if self.said != (what := f"version {self.version} goes on to answer: {error}"):
                self.tell(what)
            self.said = what

    def _newest(self) -> tuple[int, Model]:
        return versions.newest_good(self.directory, self._restored, self.tell)

    def _restored(self, saved: Saved) -> Model:
        return Model.restore(saved, self.device, self.directory)


def _takes_pictures(model: Model) -> bool:
    return len(model.plan.shape) == 3 or model.plan.start is not None


def _shape(model: Model) -> tuple[int, ...]:
    """Of the pictures that a model takes."""
    return model.plan.shape if model.plan.start is None else model.start().shape
