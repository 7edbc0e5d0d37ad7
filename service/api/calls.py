"""What the routes of every protocol do: find the task that a request is for, call it, and return what it says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import TypeVar

from model.package import Manifest
from service.api import by_language
from service.api.answering import answer, check_inputs, stream
from service.api.observing import observed
from service.errors import EmptyInput, NoModel, UnknownModel, WrongTask
from service.routing import Kind, answers, first_fitting, translators
from service.schemas import (
    AnyEvent,
    AnyRequest,
    DetokenizeRequest,
    ExplainRequest,
    Response,
    TokenizeRequest,
    TranslateRequest,
    TranslateResponse,
)
from service.schemas.translate import AUTO
from service.settings import Limits
from service.tasks.task import Task
from service.tasks.texts import as_list

Suits = Callable[[Manifest], bool]
Answer = TypeVar("Answer", bound=Response)
# What clients send as a model's name who only know an address: Hugging Face's, and by the manuals of its servers.
PLACEHOLDERS = frozenset({"dummy", "tgi", "text-embeddings-inference"})
# An explanation takes as long as many answers of its model's own task, and tokens take next to no time.
COUNTED_APART = {ExplainRequest: "explain", TokenizeRequest: "tokenize", DetokenizeRequest: "detokenize"}
NO_ALIASES: Mapping[str, str] = MappingProxyType({})
SHOWN = 100  # an error repeats so many characters of an unknown name


class Tasks:
    """The tasks that a request may be for, found by a model's name or by what they are for.

    A request that came to a model's address is for that model alone.
    """

    def __init__(self, tasks: Sequence[Task], aliases: Mapping[str, str] = NO_ALIASES) -> None:
        self._aliases = aliases  # with the names that they stand for
        self._by_name = {task.manifest.name: task for task in tasks}

    @property
    def by_name(self) -> Mapping[str, Task]:
        """The tasks that the request in progress may be for."""
        address = observed().address
        return self._by_name if address is None else {address: self._by_name[address]}

    def __iter__(self) -> Iterator[Task]:
        return iter(self.by_name.values())

    def find(self, model: str | None, kind: Kind | None, suits: Suits | None = None) -> Task:
        """Return the named model, or the first that fits, as HAProxy does; raises `NotFound`, `InvalidRequest`.

        Those that a request `suits` come before others that fit.
        """
        if (name := self.name_in(model)) is not None:
            return self.named(name, kind)
        manifests = [task.manifest for task in self]
        suitable = [manifest for manifest in manifests if suits is None or suits(manifest)]
        fitting = first_fitting(suitable, kind) or first_fitting(manifests, kind)
        if fitting is None:
            raise NoModel(f"there is no model for {kind} here; there are {self._names()}", "model")
        return self.by_name[fitting.name]

    def name_in(self, model: str | None) -> str | None:
        """Return the name of the model that a request names, None for what clients send who only know an address.

        That is a word for any model, or the address: it says which model is meant, or, at the service's own, what is
        asked.
        """
        if model is None or model in self.by_name:
            return model
        if model in self._aliases:
            return self._aliases[model]
        return None if model in PLACEHOLDERS or model.startswith(("http://", "https://")) else model

    def aliases_of(self, name: str) -> list[str]:
        """Return the further names that requests may have for a model."""
        return [alias for alias, meant in self._aliases.items() if meant == name]

    def translators(self, source: str | None, target: str) -> list[Task]:
        """Return the tasks that translate into a language, from another if that is told; the first that fits first."""
        manifests = (task.manifest for task in self)
        return [self.by_name[manifest.name] for manifest in translators(manifests, source, target)]

    def named(self, model: str, kind: Kind | None) -> Task:
        """Return the model of a name; raises `UnknownModel`, `WrongTask`."""
        if model not in self.by_name:
            if (address := observed().address) is not None:
                asked = f"there is no model {model[:SHOWN]!r} at the address of {address!r}, which has no other"
                raise UnknownModel(asked, "model")
            raise UnknownModel(f"there is no model {model[:SHOWN]!r}; there are {self._names()}", "model")
        task = self.by_name[model]
        if not answers(task.manifest, kind):
            if kind == "chat" and "generate" in task.manifest.tasks:
                asked = f"model {model!r} has no chat template; send a prompt (/v1/completions, /generate)"
                raise WrongTask(asked, "model")
            raise WrongTask(f"model {model!r} is for {' and '.join(task.manifest.tasks)}, not for {kind}", "model")
        return task

    def _names(self) -> str:
        return ", ".join(f"{name} ({', '.join(task.manifest.tasks)})" for name, task in self.by_name.items())


class Calls:
    """Calls of tasks, in the words of the native schemas; each protocol translates its own into these and back."""

    def __init__(self, tasks: Tasks, limits: Limits) -> None:
        self.tasks, self.limits = tasks, limits
        self._chooser = by_language.Chooser()

    def find(self, model: str | None, kind: Kind | None, suits: Suits | None = None) -> Task:
        """Return the task that a request is for, and let it be counted there; raises as `Tasks.find` does."""
        return _counted(self.tasks.find(model, kind, suits), kind)

    async def answer(self, request: AnyRequest, kind: Kind | None) -> Response:
        """Answer a request whole; raises a `ServiceError`."""
        if isinstance(request, TranslateRequest):
            if not as_list(request.input):
                raise EmptyInput("input is empty; send at least one text", "input")
            several = self._several(request)
            if several:
                check_inputs(request, self.limits)
                choices = await self._chooser.choose(request, several)
                return await by_language.answer(request, choices, self._translated)
            return await answer(self._translator(request), request, self.limits)
        task = self.find(request.model, kind)
        observed().task = COUNTED_APART.get(type(request), observed().task)
        return await answer(task, request, self.limits)

    async def answer_as(self, expected: type[Answer], request: AnyRequest, kind: Kind | None) -> Answer:
        """Answer a request whole, by what its task answers with; raises a `ServiceError`."""
        response = await self.answer(request, kind)
        assert isinstance(response, expected), "bug: a task answers in kind"
        return response

    def events(self, request: AnyRequest, kind: Kind) -> AsyncGenerator[AnyEvent, None]:
        """Return the events of an answer; raises a `ServiceError`, by the next event at the latest."""
        if isinstance(request, TranslateRequest):
            return self._translation(request)
        return stream(self.find(request.model, kind), request, self.limits)

    async def _translation(self, request: TranslateRequest) -> AsyncGenerator[AnyEvent, None]:
        task = self._translator(request)
        if isinstance(request.input, str) and (several := self._several(request)):
            (choice,) = await self._chooser.choose(request, several)
            task, request = _counted(choice.task, "translate"), request.model_copy(update={"source": choice.source})
        async with aclosing(stream(task, request, self.limits)) as events:
            async for event in events:
                yield event

    def _translator(self, request: TranslateRequest) -> Task:
        """Return the named model, the first for the request's languages, or the first, which says what it lacks."""
        source = None if request.source == AUTO else request.source
        is_named = self.tasks.name_in(request.model) is not None
        fitting = [] if is_named else self.tasks.translators(source, request.target)
        return _counted(fitting[0], "translate") if fitting else self.find(request.model, "translate")

    def _several(self, request: TranslateRequest) -> list[Task]:
        """Return the models among which the texts themselves choose, where neither a model nor a source is named."""
        if self.tasks.name_in(request.model) is not None or request.source != AUTO:
            return []
        into = self.tasks.translators(None, request.target)
        return into if len(into) > 1 else []

    async def _translated(self, task: Task, request: TranslateRequest) -> TranslateResponse:
        response = await answer(_counted(task, "translate"), request, self.limits)
        assert isinstance(response, TranslateResponse)
        return response

    def described(self, model: str | None, kinds: Sequence[Kind]) -> Task:
        """Return the named model, or the first that was made for one of these tasks; raises `NoModel`, `WrongTask`."""
        name = self.tasks.name_in(model)
        for task in self.tasks if name is None else [self.tasks.named(name, None)]:
            if task.manifest.task in kinds:
                return task
        what = " or ".join(kinds)
        if name is not None:
            raise WrongTask(f"model {model!r} is not for {what}", "model")
        raise NoModel(f"there is no model for {what} here", "model")


def _counted(task: Task, kind: Kind | None) -> Task:
    observed().model = task.manifest.name
    observed().task = kind if kind in task.manifest.tasks else task.manifest.task
    return task
