"""The words of one text with their places, and weights of any parts of it mapped to them.

- A word is a run of letters, digits and combining marks of any script; an ideograph or a kana is a
  word of its own, as these scripts have no spaces; so is an emoji with all that belongs to it.
- Places count Unicode characters, as Python's strings do.
- Experts see other parts of a text: tokens, words, pairs of words. `WordPlaces.weigh` shares the
  weight of a part among the words it covers; punctuation and spaces get none.
- `phrases` joins chosen words that stand side by side and count alike.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from glocal.arrays import Floats

Place = tuple[int, int]  # first character, and the one after the last

_UNSPACED = (  # first and last character of scripts without spaces between words
    (0x3041, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9D),
    (0x20000, 0x323AF),
)
# Over the classes of characters: a word, an ideograph, a flag, an emoji with its joined parts.
_WORD = re.compile(r"[wm]+|im*|rr?|s[mt]*(?:z[siw][mt]*)*")
_BETWEEN = re.compile(r"[^\S\n]{0,3}[-'’\u00ad\u200c]?")  # what may stand inside a phrase


class WordPlaces:
    """The words of a text.

    Args:
        text: The text.

    Attributes:
        places: First character of each word and the one after its last, in order.

    Example:
        >>> WordPlaces("a red fox!").places
        [(0, 1), (2, 5), (6, 9)]
    """

    def __init__(self, text: str) -> None:
        self.text = text
        classes = "".join(map(_character_class, text))
        self.places: list[Place] = [found.span() for found in _WORD.finditer(classes)]
        self._starts = [start for start, _ in self.places]

    def __len__(self) -> int:
        return len(self.places)

    def weigh(self, parts: Iterable[tuple[Place, float]]) -> Floats:
        """Return the weight of each word.

        Args:
            parts: Places in the text and their weights; a part that covers several words gives
                each a share by the characters it covers.
        """
        weights = np.zeros(len(self.places))
        for (start, stop), weight in parts:
            first = max(0, bisect_right(self._starts, start) - 1)
            covered = []
            for word in range(first, len(self.places)):
                if self.places[word][0] >= stop:
                    break
                size = min(stop, self.places[word][1]) - max(start, self.places[word][0])
                if size > 0:
                    covered.append((word, size))
            total = sum(size for _, size in covered)
            for word, size in covered:
                weights[word] += weight * size / total
        return weights

    def phrases(self, words: Sequence[int], weights: Floats) -> list[tuple[Place, list[int]]]:
        """Join words that stand side by side and count alike into phrases.

        Args:
            words: The words.
            weights: (words of the text,) above 0; of two words that are joined, the weaker has at
                least a third of the other's.

        Returns:
            The place of each phrase and its words.
        """
        joined: list[tuple[Place, list[int]]] = []
        for word in sorted(words):
            start, stop = self.places[word]
            if joined and joined[-1][1][-1] == word - 1:
                (first, end), members = joined[-1]
                weak, strong = sorted((weights[word - 1], weights[word]))
                if 3 * weak >= strong and _BETWEEN.fullmatch(self.text[end:start]):
                    joined[-1] = ((first, stop), [*members, word])
                    continue
            joined.append(((start, stop), [word]))
        return joined

    def without(self, words: Iterable[int]) -> str:
        """Return the text without some of its words."""
        kept, place = [], 0
        for word in sorted(words):
            start, stop = self.places[word]
            kept.append(self.text[place:start])
            place = stop
        return "".join([*kept, self.text[place:]])


@cache
def _character_class(character: str) -> str:
    code, category = ord(character), unicodedata.category(character)
    if any(first <= code <= last for first, last in _UNSPACED) and category[0] == "L":
        return "i"
    if 0x1F3FB <= code <= 0x1F3FF or 0xE0020 <= code <= 0xE007F:
        return "t"  # skin tones and tags, parts of an emoji
    if 0x1F1E6 <= code <= 0x1F1FF:
        return "r"  # half a flag
    if category[0] in "LN":
        return "w"
    if category[0] == "M":
        return "m"
    if character == "\u200d":
        return "z"  # joins emoji
    return "s" if category in ("So", "Sc") else "."
