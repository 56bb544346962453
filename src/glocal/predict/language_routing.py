"""Detection of a text's language, and the model that tags texts of that language.

- The language of a text is the one whose dictionary knows most of its words, among those that
  models are given for. Dictionaries come with the package `simplemma`.
- A text of which no dictionary knows enough words goes to the model for all other texts.
- Each text is tagged by one model, with that model's labels, calibration and threshold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.errors import ConfigError, no_such, require

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor

MOST_LANGUAGES = 5  # dictionaries that are kept in memory
_READ = 4_000  # characters of a text that are looked at
_FEWEST_KNOWN = 0.6  # share of a text's words that its language must know


def supported_languages() -> list[str]:
    """Return the codes of the languages that can be detected.

    Raises:
        MissingExtraError: The dictionaries are not installed.
    """
    require("simplemma", extra="languages", purpose="the detection of languages")
    from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

    return sorted(SUPPORTED_LANGUAGES)


def known_words(text: str, languages: Sequence[str]) -> dict[str, float]:
    """Return the share of the words of a text that each language knows, and `unk` for none."""
    from simplemma import LanguageDetector

    detector = LanguageDetector(tuple(languages), lemmatization_strategy=_dictionaries())
    return dict(detector.proportion_in_each_language(text))


def detect_language(text: str, languages: Sequence[str]) -> str | None:
    """Return the likeliest of some languages; None if none of them knows enough of the words.

    Example:
        >>> from glocal.predict.language_routing import detect_language
        >>> detect_language("Die Fischerei in der Nordsee wird geregelt", ["de", "en"])
        'de'
    """
    shares = known_words(text[:_READ], languages)
    best = max(languages, key=lambda language: shares.get(language, 0.0))
    return best if shares.get(best, 0.0) >= _FEWEST_KNOWN else None


@lru_cache(1)
def _dictionaries() -> Any:
    """Return the dictionaries that all detections share; the least recently used one goes."""
    from simplemma.strategies import DefaultStrategy
    from simplemma.strategies.dictionaries import DefaultDictionaryFactory

    factory = DefaultDictionaryFactory(cache_max_size=MOST_LANGUAGES)
    return DefaultStrategy(dictionary_factory=factory)


def parse_routes(given: Iterable[str]) -> dict[str, Path]:
    """Return the model directory of each language, each given as LANGUAGE=MODEL.

    Raises:
        ConfigError: With every problem: no `=`, a language that is not known, given twice, or too
            many of them.
        MissingExtraError: The dictionaries are not installed.
    """
    known, routes, problems = supported_languages(), dict[str, Path](), []
    for route in given:
        language, equals, model = route.partition("=")
        if not equals or not model:
            problems.append(f"a route is LANGUAGE=MODEL, such as de=model-de, not '{route}'")
        elif language not in known:
            problems.append(no_such("language", language, known))
        elif language in routes:
            problems.append(f"there are two models for the language {language}; give one")
        else:
            routes[language] = Path(model)
    if len(routes) > MOST_LANGUAGES:
        problems.append(
            f"there are {len(routes)} languages; at most {MOST_LANGUAGES} can be told apart"
        )
    ConfigError.raise_any(problems)
    return routes


class LanguageRoutes:
    """Models for texts of different languages.

    Args:
        fallback: The model for all other texts.
        by_language: The model of each language.
    """

    def __init__(self, fallback: Predictor, by_language: Mapping[str, Predictor]) -> None:
        self.fallback, self.by_language = fallback, dict(by_language)

    @classmethod
    def load(
        cls, fallback: str | Path, routes: Mapping[str, Path], **options: Any
    ) -> LanguageRoutes:
        """Load models, each directory once.

        Args:
            fallback: The model directory for all other texts.
            routes: The model directory of each language.
            options: Arguments of `Predictor.load`.

        Raises:
            ModelError: A model cannot be loaded.
        """
        from glocal.predict.predictor import Predictor

        places = {Path(path).resolve(): path for path in (fallback, *routes.values())}
        loaded = {place: Predictor.load(path, **options) for place, path in places.items()}
        return cls(
            loaded[Path(fallback).resolve()],
            {language: loaded[path.resolve()] for language, path in routes.items()},
        )

    @property
    def predictors(self) -> list[Predictor]:
        """All models, each once."""
        return list({id(p): p for p in (self.fallback, *self.by_language.values())}.values())

    def divide(self, texts: Sequence[str]) -> Iterator[tuple[Predictor, list[int]]]:
        """Yield each model that has texts to tag, with their positions."""
        positions: dict[int, list[int]] = {}
        for position, text in enumerate(texts):
            language = detect_language(text, list(self.by_language))
            predictor = self.fallback if language is None else self.by_language[language]
            positions.setdefault(id(predictor), []).append(position)
        for predictor in self.predictors:
            if id(predictor) in positions:
                yield predictor, positions[id(predictor)]
