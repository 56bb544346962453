"""Requests and answers of the REST interface, with the examples that the documentation shows.

Requests are read strictly: a number in quotes, an unknown field or a value that is not finite is
refused with its place.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

LabelId = Annotated[str, Field(min_length=1, max_length=1_000)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def _whole(value: Any) -> Any:
    """Read 6.0 as 6: both are whole numbers in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_WHOLE = BeforeValidator(_whole)  # comes after the bounds, or the schema would not show them

_TEXT = "Burn on the back of the right hand from boiling water"


def _example(**fields: Any) -> ConfigDict:
    """Return the settings of a model that show an example; others are those of its base class."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class PredictRequest(_Request):
    """Texts to tag."""

    model_config = _example(texts=[_TEXT], k=3)
    model: str | None = Field(
        None,
        description="Id of the model; by default that of the text's language, else the first one.",
    )
    texts: list[str] = Field(min_length=1, description="Texts to tag.")
    k: Annotated[int, Field(ge=1, le=1_000_000), _WHOLE] | None = Field(
        None, description="Largest number of tags."
    )
    threshold: Probability | None = Field(None, description="Lowest probability of a tag.")
    only: list[LabelId] | None = Field(
        None, min_length=1, description="Ids of labels to choose from."
    )
    exclude: list[LabelId] | None = Field(None, description="Ids of labels never to predict.")
    truncate: bool = Field(False, description="Cut a text that is too long instead of refusing it.")


class Tag(BaseModel):
    """A label of a text."""

    id: str
    name: str
    score: float = Field(description="Calibrated probability.")


class TaggedText(BaseModel):
    """The tags of one text, best first."""

    tags: list[Tag]
    model: str = Field(description="Id of the model that gave them.")


class PredictResponse(BaseModel):
    """The tags of each text."""

    model_config = _example(
        model="demo-model",
        results=[
            {
                "tags": [{"id": "T23", "name": "Burn of wrist and hand", "score": 0.93}],
                "model": "demo-model",
            }
        ],
    )
    model: str = Field(description="Id of the model asked for, or of the default one.")
    results: list[TaggedText]


class ExplainRequest(_Request):
    """A text whose tags are to be explained."""

    model_config = _example(text=_TEXT, k=3)
    model: str | None = Field(None, description="Id of the model; the first one by default.")
    text: str = Field(description="The text.")
    k: Annotated[int, Field(ge=1, le=100), _WHOLE] | None = Field(
        None, description="Number of tags; 5 by default."
    )
    labels: list[LabelId] | None = Field(
        None, min_length=1, max_length=100, description="Ids of labels to explain instead."
    )
    truncate: bool = Field(False, description="Cut a text that is too long instead of refusing it.")


class ExpertShare(BaseModel):
    """The contribution of one expert to a tag."""

    name: str
    score: float = Field(description="Probability by this expert alone.")
    log_odds: float = Field(description="Contribution to the tag's combined log-odds.")
    share: float = Field(description="Share of all contributions; below 0 against the tag.")


class ExplainedSpan(BaseModel):
    """A part of the text that speaks for a tag; places are counted in Unicode code points."""

    start: int
    end: int
    text: str
    weight: float = Field(description="Share of the expert's evidence for the tag.")
    expert: str = Field(description="The expert whose evidence it is; `all` for the whole model.")


class ExplainedTag(Tag):
    """A tag with the experts' shares and the words behind it."""

    experts: list[ExpertShare]
    spans: list[ExplainedSpan]


class LabelName(BaseModel):
    """A label by its id and its name."""

    id: str
    name: str


class SimilarText(BaseModel):
    """A training text that resembles the text."""

    id: str
    text: str | None = Field(description="Its beginning.")
    labels: list[LabelName]
    similarity: float


class ExplainResponse(BaseModel):
    """The tags of a text and the reasons for them."""

    model: str
    tags: list[ExplainedTag]
    similar: list[SimilarText]


class DefaultDecision(BaseModel):
    """The stored decision which labels become tags."""

    threshold: float
    min_tags: int
    own_thresholds: int = Field(description="Number of labels with a threshold of their own.")
    goal: str = Field(description="What it was tuned for after training; empty if it was not.")


class ModelFacts(BaseModel):
    """A model that is served."""

    id: str
    name: str
    n_labels: int
    experts: list[str]
    default: DefaultDecision
    loaded: bool
    similar_texts: bool = Field(description="Whether explanations show similar training texts.")


class ModelList(BaseModel):
    """The models that are served; the first one is the default."""

    models: list[ModelFacts]


class ModelDetails(ModelFacts):
    """A model with its card, what training measured, and its recipe."""

    card: str = Field(description="The model card, in Markdown.")
    metrics: dict[str, Any]
    recipe: dict[str, Any]
    created: str


class LabelFacts(BaseModel):
    """A label with its place in the hierarchy."""

    id: str
    name: str
    alternatives: list[str]
    description: str
    parents: list[str]
    children_count: int
    count: int = Field(description="Number of training texts.")


class LabelPage(BaseModel):
    """A page of labels."""

    total: int
    page: int
    size: int
    labels: list[LabelFacts]


class FeedbackRequest(_Request):
    """A text with its right labels."""

    model_config = _example(text=_TEXT, labels=["T23"], suggested=["T23", "T24"])
    model: str | None = Field(None, description="Id of the model; the first one by default.")
    text: str = Field(pattern=r"\S", description="The text.")
    labels: list[LabelId] = Field(max_length=1_000, description="Ids of the right labels.")
    suggested: list[LabelId] | None = Field(
        None, max_length=1_000, description="Ids of the labels that were suggested."
    )
    id: str | None = Field(
        None, min_length=1, max_length=200, description="Id of the text; made up by default."
    )


class FeedbackResponse(BaseModel):
    """The receipt for a correction that is on the disk."""

    id: str
    unknown_labels: list[str] = Field(description="Labels that the model does not know.")
