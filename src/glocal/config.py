"""Recipes: every setting of a run, typed, documented, read from and written to TOML.

- plain dataclasses, so that a saved model loads without a validation library;
- a recipe may name another one it `extends`, and holds only what differs;
- all problems of a file and of the overrides are reported at once, an unknown key with the nearest
  valid one;
- the text beside each field is its help text (`glocal recipes show NAME`).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from glocal.errors import ConfigError

__all__ = [
    "AplcConfig",
    "AttentionConfig",
    "CandidatesConfig",
    "DocumentConfig",
    "EncoderConfig",
    "LabelsConfig",
    "LossConfig",
    "Recipe",
    "TrainConfig",
    "load_recipe",
    "parse_override",
    "recipe_from_mapping",
    "recipe_names",
    "recipe_to_mapping",
    "to_toml",
]


def option(
    default: Any,
    doc: str,
    *,
    choices: tuple[Any, ...] = (),
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
) -> Any:
    """A dataclass field with its help text and the values it may take."""
    limits = {"choices": choices, "at_least": at_least, "above": above, "at_most": at_most}
    metadata = {"doc": doc, **limits}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class EncoderConfig:
    """Which encoder reads the text, and how."""

    name: str = option("minilm", "`minilm`, a local folder, or a Hugging Face hub id")
    max_length: int = option(256, "tokens read of each text, special tokens included", at_least=3)
    pooling: str = option("cls", "what stands for the document", choices=("cls", "mean"))
    dropout: float = option(
        0.1, "dropout on the hidden states before the experts", at_least=0, at_most=0.99
    )
    freeze: bool = option(False, "keep the encoder's weights fixed")
    gradient_checkpointing: bool = option(False, "recompute activations to save memory")
    attention: str = option(
        "sdpa", "the encoder's attention implementation", choices=("sdpa", "eager")
    )


@dataclass(frozen=True)
class LabelsConfig:
    """Which labels a model knows."""

    min_count: int = option(1, "a label needs this many training texts", at_least=1)
    score_unseen: bool = option(
        False, "also score labels of the label table that have no training text"
    )


@dataclass(frozen=True)
class DocumentConfig:
    """Document experts (`D-n`): the document vector of layer n against a vector per label."""

    pooler: bool = option(False, "a linear layer with tanh before the label vectors")
    hidden_size: int = option(0, "width of a hidden layer before the labels (0: none)", at_least=0)
    bias: bool = option(True, "a bias for each label")
    head: str = option(
        "flat",
        "the output layer: a vector for each label, or the label clusters of [aplc]",
        choices=("flat", "aplc"),
    )


@dataclass(frozen=True)
class AttentionConfig:
    """Label-attention experts (`A-n`): each label attends to the tokens of layer n."""

    projections: bool = option(True, "project keys and values (off: ME-XML's plain attention)")
    key_size: int = option(256, "width of keys and label queries", at_least=1)
    hidden_size: int = option(256, "width of the label MLP's hidden layer", at_least=1)
    separate_values: bool = option(
        False, "keep the value projection and the first MLP layer as two matrices"
    )
    temperature: float = option(1.0, "τ of the attention's softmax", above=0)
    query_init: str = option(
        "normal",
        "where label queries start: N(0, 0.02), or the mean token of each label's texts",
        choices=("normal", "tokens"),
    )
    bias: bool = option(True, "a bias for each label")
    stop_gradient: bool = option(False, "no gradient from this expert into the encoder")


@dataclass(frozen=True)
class AplcConfig:
    """Adaptive probabilistic label clusters: rare labels in smaller output layers behind gates."""

    partition: tuple[float, ...] = option(
        (0.5, 0.5), "shares of the labels in the head and each tail, by falling training frequency"
    )
    q: float = option(2.0, "each tail is this many times narrower than the one before", at_least=1)
    hidden_size: int = option(
        0, "width of the layer between encoder and labels (0: as wide as the encoder)", at_least=0
    )
    tail: str = option(
        "official",
        "a tail's projection: with layer norm and ReLU (the published code), or linear alone",
        choices=("official", "plain"),
    )
    bias: bool = option(
        True, "a bias for each label and gate, started at the training prior's log-odds"
    )
    reduction: str = option(
        "sum",
        "of the loss: summed over a text's scored labels, their mean, or Eq. 5's ratio of sums",
        choices=("sum", "document", "ratio"),
    )
    skip_tails: bool = option(
        True, "train a tail on the texts with a label in it alone (off: fixed shapes on a GPU)"
    )


@dataclass(frozen=True)
class LossConfig:
    """What training minimises."""

    kind: str = option(
        "individual",
        "each expert's BCE on its own, or the BCE of the mean logit",
        choices=("individual", "collaborative"),
    )
    expert_reduction: str = option(
        "sum", "over the experts' losses (individual)", choices=("sum", "mean")
    )
    label_reduction: str = option("sum", "over the labels", choices=("sum", "mean"))
    bias_init: str = option(
        "prior", "where label biases start: the training prior's log-odds, or a number"
    )
    diversity_weight: float = option(0.0, "α of ME-XML's diversity loss (0: off)", at_least=0)
    diversity_start: float = option(
        0.25, "fraction of training after which it is added", at_least=0, at_most=1
    )


@dataclass(frozen=True)
class CandidatesConfig:
    """Which labels the attention experts score.

    `full` scores every label; `shortlist` trains on each text's gold labels, the document expert's
    current best and a random sample, and predicts on the document expert's best; `auto` takes
    `full` on a GPU and `shortlist` on a CPU when there are many labels.
    """

    mode: str = option("auto", "how many labels", choices=("auto", "full", "shortlist"))
    hard: int = option(32, "labels the document expert ranks highest, in training", at_least=0)
    random: int = option(64, "labels drawn at random, in training", at_least=0)
    predict: int = option(128, "labels re-scored at prediction", at_least=1)


_RATES = {
    "encoder": 1e-4,
    "pooler": 2e-4,
    "classifier": 2e-3,
    "attention": 2e-4,
    "queries": 2e-3,
    "mlp": 2e-3,
}


@dataclass(frozen=True)
class TrainConfig:
    """The training run."""

    epochs: int = option(9, "passes over the training texts", at_least=1)
    batch_size: int = option(64, "texts per optimizer step, over all processes", at_least=1)
    accumulation: int = option(1, "parts a step's batch is computed in", at_least=1)
    rates: dict[str, float] = field(
        default_factory=lambda: dict(_RATES),
        metadata={"doc": "learning rate of each parameter group"},
    )
    schedule: str = option(
        "linear",
        "after the warm-up",
        choices=("linear", "cosine", "constant", "slanted-triangular"),
    )
    warmup: float = option(0.05, "fraction of the steps", at_least=0, at_most=1)
    weight_decay: float = option(0.01, "on the encoder's matrices", at_least=0)
    clip_norm: float = option(10.0, "largest gradient norm (0: no clipping)", at_least=0)
    precision: str = option(
        "auto",
        "arithmetic; auto: bf16 where the GPU has it",
        choices=("auto", "bf16", "fp16", "fp32"),
    )
    graphs: bool = option(True, "record steps as CUDA graphs and replay them, where possible")
    compile: bool = option(False, "compile the encoder with torch.compile")
    seed: int = option(0, "of everything random", at_least=0)
    metric: str = option("P@5", "on dev: decides the best checkpoint and early stopping")
    evaluations: int = option(0, "per run on dev (0: once an epoch)", at_least=0)
    patience: int = option(0, "evaluations without gain before stopping (0: never)", at_least=0)
    averaging: float = option(
        0.0, "fraction of the run, at its end, whose weights are averaged", at_least=0, at_most=1
    )
    checkpoints: int = option(0, "saved per epoch besides the one at its end", at_least=0)
    chunk_elements: int = option(
        0, "largest (texts × labels × width) tensor (0: by device)", at_least=0
    )


@dataclass(frozen=True)
class Recipe:
    """Everything that defines a run besides its data."""

    system: str = option("glocalxml", "which system (`glocal recipes` lists them)")
    description: str = option("", "one line about the recipe")
    experts: tuple[str, ...] = option(
        ("D-last", "A-1"), "experts, as D-n, A-n or D-(m+n); n a layer, `middle` or `last`"
    )
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    labels: LabelsConfig = field(default_factory=LabelsConfig)
    document: DocumentConfig = field(default_factory=DocumentConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    aplc: AplcConfig = field(default_factory=AplcConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    candidates: CandidatesConfig = field(default_factory=CandidatesConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


# --- reading ---------------------------------------------------------------------------------


def recipe_names() -> list[str]:
    """Names of the built-in recipes."""
    folder = resources.files("glocal.recipes")
    return sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".toml"))


def load_recipe(name_or_path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """A built-in recipe by name or a TOML file by path, with `section.key=value` overrides.

    Raises:
        ConfigError: With every problem found in the file and the overrides.
    """
    mapping = _read_with_parents(str(name_or_path), seen=())
    problems: list[str] = []
    for text in overrides:
        try:
            _set_dotted(mapping, *parse_override(text))
        except ConfigError as error:
            problems += error.problems
    return recipe_from_mapping(mapping, source=str(name_or_path), problems=problems)


def recipe_from_mapping(
    mapping: Mapping[str, Any], *, source: str = "recipe", problems: list[str] | None = None
) -> Recipe:
    """Build a recipe from nested mappings, reporting every problem at once."""
    problems = [] if problems is None else problems
    recipe = _build(Recipe, mapping, "", problems)
    if problems:
        raise ConfigError([f"{source}: {problem}" for problem in problems])
    return typing.cast(Recipe, recipe)


def parse_override(text: str) -> tuple[str, Any]:
    """Split `section.key=value`; the value is TOML, and plain words are strings."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"'{text}' is not of the form section.key=value")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def _read_with_parents(name: str, seen: tuple[str, ...]) -> dict[str, Any]:
    name = str(Path(name).resolve()) if name.endswith(".toml") else name
    if name in seen:
        raise ConfigError(f"recipes extend one another in a circle: {' → '.join([*seen, name])}")
    mapping = _read_toml(name)
    parent = mapping.pop("extends", None)
    if parent is None:
        return mapping
    beside = Path(name).parent / str(parent)
    base = str(beside) if name.endswith(".toml") and beside.is_file() else str(parent)
    return _merge(_read_with_parents(base, (*seen, name)), mapping)


def _read_toml(name: str) -> dict[str, Any]:
    path = Path(name)
    try:
        if name in recipe_names():
            return tomllib.loads(
                (resources.files("glocal.recipes") / f"{name}.toml").read_text("utf-8")
            )
        if path.suffix == ".toml":
            return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the recipe {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    raise ConfigError(
        f"there is no recipe '{name}'{_nearest(name, recipe_names())}; "
        f"`glocal recipes` lists them, and a path must end in .toml"
    )


def _merge(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = (
            _merge(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
        )
    return merged


def _set_dotted(mapping: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, key = dotted.split(".")
    for section in sections:
        inner = mapping.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"'{dotted}': '{section}' is a value, not a section")
        mapping = inner
    mapping[key] = value


# --- checking --------------------------------------------------------------------------------


def _build(cls: type, mapping: Any, where: str, problems: list[str]) -> Any:
    if not isinstance(mapping, Mapping):
        problems.append(f"'{where}' must be a section with keys, not {mapping!r}")
        return cls()
    known = {f.name: f for f in fields(cls)}
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for key, value in mapping.items():
        dotted = f"{where}.{key}" if where else key
        if key not in known:
            problems.append(f"unknown key '{dotted}'{_nearest(key, known)}")
        elif is_dataclass(hints[key]):
            values[key] = _build(typing.cast(type, hints[key]), value, dotted, problems)
        else:
            default = _default(known[key])
            values[key] = _check(known[key], hints[key], value, default, dotted, problems)
    return cls(**values)


def _default(spec: dataclasses.Field[Any]) -> Any:
    return spec.default_factory() if callable(spec.default_factory) else spec.default


def _check(
    spec: dataclasses.Field[Any],
    hint: Any,
    value: Any,
    default: Any,
    dotted: str,
    problems: list[str],
) -> Any:
    converted = _convert(hint, value)
    if converted is _WRONG:
        problems.append(f"'{dotted}' must be {_describe(hint)}, not {value!r}")
        return default
    if isinstance(converted, dict):
        for key in converted.keys() - default.keys():
            problems.append(f"unknown key '{dotted}.{key}'{_nearest(key, default)}")
        for key, number in converted.items():
            if not (math.isfinite(number) and number >= 0):
                problems.append(f"'{dotted}.{key}' must be a number of at least 0, not {number}")
        return {**default, **converted}
    problem = _out_of_range(spec.metadata, converted)
    if problem:
        problems.append(f"'{dotted}' must be {problem}, not {value!r}")
        return default
    return converted


def _out_of_range(limits: Mapping[str, Any], value: Any) -> str:
    choices = limits.get("choices")
    if choices and value not in choices:
        return f"one of {', '.join(map(str, choices))}"
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    if limits.get("at_least") is not None and value < limits["at_least"]:
        return f"at least {limits['at_least']}"
    if limits.get("above") is not None and value <= limits["above"]:
        return f"above {limits['above']}"
    if limits.get("at_most") is not None and value > limits["at_most"]:
        return f"at most {limits['at_most']}"
    return ""


_WRONG = object()


def _convert(hint: Any, value: Any) -> Any:
    """The value as the type asked for, or `_WRONG`."""
    origin = typing.get_origin(hint)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return _WRONG
        items = tuple(_convert(typing.get_args(hint)[0], v) for v in value)
        strings = typing.get_args(hint)[0] is str
        wrong = any(i is _WRONG or (strings and i != v) for i, v in zip(items, value, strict=True))
        return _WRONG if wrong else items
    if origin is dict:
        numbers = isinstance(value, Mapping) and all(_is_number(v) for v in value.values())
        if not numbers:
            return _WRONG
        converted = {str(k): _float(v) for k, v in value.items()}
        return _WRONG if _WRONG in converted.values() else converted
    if hint is float:
        return _float(value) if _is_number(value) else _WRONG
    if hint is int:
        return value if isinstance(value, int) and not isinstance(value, bool) else _WRONG
    if hint is str and _is_number(value):
        return str(value)
    return value if isinstance(value, hint) else _WRONG


def _float(value: int | float) -> Any:
    try:
        return float(value)
    except OverflowError:  # an enormous whole number
        return _WRONG


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _describe(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is tuple:
        return f"a list of {'strings' if typing.get_args(hint)[0] is str else 'numbers'}"
    if origin is dict:
        return "a table of numbers"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    return names.get(hint, str(hint)) if not isinstance(hint, types.UnionType) else str(hint)


def _nearest(name: str, valid: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""


# --- writing ---------------------------------------------------------------------------------


def recipe_to_mapping(recipe: Recipe) -> dict[str, Any]:
    """Nested plain mappings, every key present."""
    return typing.cast(dict[str, Any], _plain(dataclasses.asdict(recipe)))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value


def to_toml(mapping: Mapping[str, Any]) -> str:
    """Write nested mappings of strings, numbers, booleans and lists as TOML."""
    lines: list[str] = []
    _write_table(mapping, (), lines)
    return "\n".join(lines).strip() + "\n"


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    if path and (len(inner) < len(table) or not inner):
        lines += ["", f"[{'.'.join(path)}]"]
    lines += [
        f"{_key(k)} = {_value(v)}" for k, v in table.items() if k not in inner and v is not None
    ]
    for key, value in inner.items():
        _write_table(value, (*path, _key(key)), lines)


def _key(key: str) -> str:
    bare = key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key)
    return key if bare else _string(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(v) for v in value)}]"
    return repr(value)


def _string(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    escaped = "".join(
        escapes.get(c, c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}") for c in text
    )
    return f'"{escaped}"'
