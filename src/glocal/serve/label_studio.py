"""A machine-learning backend for Label Studio, under `/label-studio/` and `/label-studio/MODEL/`.

- `predict` fills in the tags of tasks before people see them; `webhook` stores the labels they
  settle on as training rows.
- The labelling interface of a project says which field of a task holds the text and which control
  takes the tags: the first `Choices` or `Taxonomy` whose object is a `Text` or `HyperText`.
- A choice stands for the label whose id is its alias or value, else for the one with that name.
  Without fixed choices (they come from the task or from elsewhere) names of labels are used.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from glocal.ranking.predictions import Tag
from glocal.serve.problems import POST_PROBLEMS, Problem, problem_responses
from glocal.serve.service import InService, Service
from glocal.vocabulary.label_space import LabelSpace

label_studio_router = APIRouter(include_in_schema=False)

_PROBLEMS = problem_responses(*POST_PROBLEMS)
_CONTROLS = {"Choices": "choices", "Taxonomy": "taxonomy"}
_ITEMS = ("Choice", "Label")
_STORED_ACTIONS = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_CREATED")

ModelId = Annotated[str, Path(description="Id of a model.")]


class _Payload(BaseModel):
    """A part of what Label Studio sends; its other fields are not used."""

    model_config = ConfigDict(strict=True, extra="ignore")


class Task(_Payload):
    """A task with the data of a project's import."""

    id: int | None = None
    data: dict[str, Any]


class TaskBatch(_Payload):
    """Tasks to fill in."""

    tasks: list[Task]
    label_config: str | None = Field(None, max_length=1_000_000)


class SetupRequest(_Payload):
    """A project that connects."""

    project: str | None = None
    schema_: str | None = Field(None, alias="schema", max_length=1_000_000)


class Annotation(_Payload):
    """The answer that somebody gave to a task."""

    id: int | None = None
    result: list[dict[str, Any]]
    was_cancelled: bool = False


class LabelStudioProject(_Payload):
    """A project with its labelling interface."""

    id: int | None = None
    label_config: str | None = Field(None, max_length=1_000_000)


class WebhookEvent(_Payload):
    """Something that happened in a project."""

    action: str
    annotation: Annotation | None = None
    task: Task | None = None
    project: LabelStudioProject | None = None


@dataclass(frozen=True)
class Interface:
    """The parts of a labelling interface that tags need.

    Attributes:
        control: Name of the control that takes the tags.
        kind: `choices` or `taxonomy`.
        object: Name of the object that shows the text.
        field: Field of a task's data with the text.
        choices: Choices of a project by the label they may stand for: alias or value → the path
            of values.
    """

    control: str
    kind: str
    object: str
    field: str
    choices: Mapping[str, tuple[str, ...]]

    def labels(self, labels: LabelSpace) -> dict[str, tuple[str, ...]]:
        """Return the choice of each label that has one."""
        names = {name: id_ for id_, name in zip(labels.ids, labels.names, strict=True)}
        found = ((c if c in labels.index else names.get(c), p) for c, p in self.choices.items())
        return {id_: path for id_, path in found if id_ is not None}

    def result(self, tags: list[Tag], paths: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
        """Return tags as the result of an annotation."""
        chosen = [paths.get(tag.id, (tag.name,)) for tag in tags]
        values: list[Any] = [path[-1] for path in chosen] if self.kind == "choices" else chosen
        value = {"from_name": self.control, "to_name": self.object, "type": self.kind}
        return [{**value, "value": {self.kind: values}}] if values else []


@label_studio_router.get("/health")
async def health(service: InService, model: ModelId | None = None) -> dict[str, str]:
    """Say that the backend is there."""
    return {"status": "UP", "model_class": f"glocal {service.model(model).id}"}


@label_studio_router.post("/setup", responses=_PROBLEMS)
async def setup(
    request: SetupRequest, service: InService, model: ModelId | None = None
) -> dict[str, str]:
    """Connect a project; an interface that tags cannot be filled into is refused."""
    if request.schema_:
        read_interface(request.schema_)
    return {"model_version": _version(service, model)}


@label_studio_router.get("/versions")
async def versions(service: InService, model: ModelId | None = None) -> dict[str, list[str]]:
    """List the versions of the model: the one that is served."""
    return {"versions": [_version(service, model)]}


@label_studio_router.post("/predict", responses=_PROBLEMS)
async def prefill(
    request: TaskBatch, service: InService, model: ModelId | None = None
) -> dict[str, Any]:
    """Return the tags of each task by the decision stored with the model."""
    served = service.model(model)
    interface = read_interface(request.label_config or "")
    loaded = await service.loaded(served)
    texts = [_text(task, interface.field) for task in request.tasks]
    paths = interface.labels(loaded.predictor.labels)
    results: list[dict[str, Any]] = []
    size, version = service.settings.limits.max_texts, _version(service, model)
    for start in range(0, len(texts), size):
        found = await service.tag(
            loaded,
            texts[start : start + size],
            truncate=True,
            only=tuple(paths) if paths else None,
        )
        results += [
            {
                "result": interface.result(tags, paths),
                "score": max((tag.score for tag in tags), default=0.0),
                "model_version": version,
            }
            for tags in found
        ]
    return {"results": results, "model_version": version}


@label_studio_router.post("/webhook", status_code=201, responses=_PROBLEMS)
async def webhook(
    event: WebhookEvent, service: InService, model: ModelId | None = None
) -> dict[str, Any]:
    """Store the labels that somebody settled on; other events are accepted and not used."""
    served = service.model(model)
    task, annotation = event.task, event.annotation
    if event.action not in _STORED_ACTIONS or task is None or annotation is None:
        return {"status": "ignored"}
    if annotation.was_cancelled:
        return {"status": "ignored"}
    interface = read_interface((event.project and event.project.label_config) or "")
    labels = (await service.loaded(served)).predictor.labels
    by_path = {path: id_ for id_, path in interface.labels(labels).items()}
    names = {name: id_ for id_, name in zip(labels.ids, labels.names, strict=True)}
    (text,) = service.checked_texts([_text(task, interface.field)], truncate=True)
    chosen = list(_chosen(annotation.result, interface, by_path))
    ids = [by_path.get(path) or names.get(path[-1]) or path[-1] for path in chosen]
    project = event.project.id if event.project else None
    row = {
        "id": f"label-studio-{project}-{task.id}-{annotation.id}",
        "text": text,
        "labels": list(dict.fromkeys(ids)),
    }
    await service.store(served, [row])
    return {"status": "stored", "labels": row["labels"]}


def read_interface(config: str) -> Interface:
    """Read the XML of a labelling interface.

    Raises:
        Problem: 422, it has no text with choices or a taxonomy, or is not XML.
    """
    if "<!" in config.replace("<!--", ""):
        raise Problem(422, "label_config: a document type or an entity is not allowed in it")
    try:
        root = ET.fromstring(config)
    except (ET.ParseError, ValueError) as error:
        raise Problem(422, f"label_config: not valid XML ({error})") from None
    texts = {
        found.get("name", ""): found.get("value", "").removeprefix("$")
        for found in root.iter()
        if found.tag in ("Text", "HyperText")
    }
    for found in root.iter():
        to_name = found.get("toName", "").split(",")[0]
        if found.tag in _CONTROLS and to_name in texts:
            return Interface(
                found.get("name", ""),
                _CONTROLS[found.tag],
                to_name,
                texts[to_name],
                dict(_choices(found, ())),
            )
    raise Problem(
        422,
        'label_config: tags need a <Choices choice="multiple"> or a <Taxonomy> whose toName is a '
        "<Text>",
    )


def _choices(element: ET.Element, above: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what each choice may stand for, and its path of values."""
    for child in element:
        if child.tag not in _ITEMS:
            yield from _choices(child, above)
            continue
        path = (*above, child.get("alias") or child.get("value") or "")
        yield path[-1], path
        yield from _choices(child, path)


def _chosen(
    result: list[dict[str, Any]], interface: Interface, known: Mapping[tuple[str, ...], str]
) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the choices in the result of an annotation."""
    for part in result:
        value = part.get("value")
        if part.get("from_name") != interface.control or not isinstance(value, dict):
            continue
        for choice in value.get(interface.kind) or ():
            path = (choice,) if isinstance(choice, str) else tuple(map(str, choice))
            if path in known or interface.kind == "taxonomy":
                yield path
            else:  # choices are given without the path above them
                yield next((p for p in known if p[-1] == path[-1]), path)


def _text(task: Task, field: str) -> str:
    text = task.data.get(field)
    if not isinstance(text, str):
        raise Problem(422, f"task {task.id}: its data has no text in the field '{field}'")
    return text


def _version(service: Service, model: str | None) -> str:
    served = service.model(model)
    return f"{served.id} {served.modified():%Y-%m-%d %H:%M:%S}"
