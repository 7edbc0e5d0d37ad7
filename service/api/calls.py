"""What the routes of every protocol do: find the task that a request is for, call it, and return what it says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence

from service.api.answering import answer, stream
from service.api.observing import observed
from service.errors import NoModel, NotFound, WrongTask
from service.ingress import Kind, answers, first_fitting
from service.schemas import AnyEvent, AnyRequest, Response
from service.settings import Limits
from service.tasks.task import Task


class Tasks:
    """The tasks under one address, found by a model's name or by what they are for."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.by_name = {task.manifest.name: task for task in tasks}

    def __iter__(self) -> Iterator[Task]:
        return iter(self.by_name.values())

    def find(self, model: str | None, kind: Kind | None) -> Task:
        """Return the named model, or the first that fits, as HAProxy does; raises `NotFound`, `InvalidRequest`."""
        if model is not None:
            return self._named(model, kind)
        fitting = first_fitting((task.manifest for task in self), kind)
        if fitting is None:
            raise NoModel(f"there is no model for {kind} here; there are {self._names()}", "model")
        return self.by_name[fitting.name]

    def _named(self, model: str, kind: Kind | None) -> Task:
        if model not in self.by_name:
            raise NotFound(f"there is no model {model!r}; there are {self._names()}", "model")
        task = self.by_name[model]
        if not answers(task.manifest, kind):
            raise WrongTask(f"model {model!r} is for {' and '.join(task.manifest.tasks)}, not for {kind}", "model")
        return task

    def _names(self) -> str:
        return ", ".join(f"{name} ({', '.join(task.manifest.tasks)})" for name, task in self.by_name.items())


class Calls:
    """Calls of tasks, in the words of the native schemas; each protocol translates its own into these and back."""

    def __init__(self, tasks: Tasks, limits: Limits) -> None:
        self.tasks, self.limits = tasks, limits

    def find(self, model: str | None, kind: Kind | None) -> Task:
        """Return the task that a request is for, and let it be counted there; raises `NotFound`, `InvalidRequest`."""
        task = self.tasks.find(model, kind)
        observed().model = task.manifest.name
        observed().task = kind if kind in task.manifest.tasks else task.manifest.task
        return task

    async def answer(self, request: AnyRequest, kind: Kind | None) -> Response:
        """Answer a request whole; raises a `ServiceError`."""
        return await answer(self.find(request.model, kind), request, self.limits)

    def events(self, request: AnyRequest, kind: Kind) -> AsyncGenerator[AnyEvent, None]:
        """Return the events of an answer; raises a `ServiceError`, by the next event at the latest."""
        return stream(self.find(request.model, kind), request, self.limits)

    def described(self, model: str | None, kinds: Sequence[Kind]) -> Task:
        """Return the named model, or the first that was made for one of these tasks; raises `NoModel`, `WrongTask`."""
        for task in self.tasks if model is None else [self.tasks.find(model, None)]:
            if task.manifest.task in kinds:
                return task
        what = " or ".join(kinds)
        if model is not None:
            raise WrongTask(f"model {model!r} is not for {what}", "model")
        raise NoModel(f"there is no model for {what} here", "model")
