"""Everything of a run that needs texts alone, computed ahead and kept in the cache.

A later training on the same texts with the same settings finds the tokens and the models of words
there. Runs that share a cache, such as those of a cluster, then start with the first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from glocal.companions.companion import FitInputs
from glocal.companions.companion_list import Companions, word_vectors
from glocal.companions.sparse.cluster_solvers import ClusterSolvers
from glocal.config import Recipe
from glocal.config.settings import NO_ENCODER
from glocal.data.corpus import Corpus
from glocal.data.tokens import Encode, TextTokenizer, tokenise
from glocal.progress import Progress, StagedProgress, silent
from glocal.train.gather import build_label_space, check_recipe, hold_out
from glocal.vocabulary.label_table import LabelTable


@dataclass(frozen=True)
class Prepared:
    """The prepared parts of a corpus that are now in the cache.

    Attributes:
        texts: Number of texts.
        labels: Number of labels.
        tokens: Number of tokens that an encoder reads; 0 for a model of words alone.
        words: Whether a model of words was fitted.
    """

    texts: int
    labels: int
    tokens: int
    words: bool


@dataclass(frozen=True)
class Preparation:
    """Texts to prepare for a recipe.

    Attributes:
        recipe: The settings.
        train: The training texts.
        dev: The texts to choose the best weights on; None where a run will hold some out.
        table: Names, descriptions and parents of labels.
    """

    recipe: Recipe
    train: Corpus
    dev: Corpus | None = None
    table: LabelTable | None = None

    def checked(self) -> Preparation:
        """Return the preparation of the recipe with the values of a preset in place of open ones.

        Raises:
            ConfigError: The recipe breaks a rule.
        """
        return replace(self, recipe=check_recipe(self.recipe, self.table).draft)

    def words(
        self, progress: StagedProgress = silent, solvers: ClusterSolvers | None = None
    ) -> tuple[int, bool]:
        """Fit the models of words and keep them; return the number of labels, and whether any.

        Args:
            progress: Returns the progress callback of a stage.
            solvers: Workers that fit them together; None for this process alone.
        """
        labels = build_label_space(self.recipe, self.train, self.table)
        vectors = word_vectors(self.recipe, self.train, self.table)
        inputs = FitInputs(self.recipe, self.train, labels, self.table, vectors, solvers=solvers)
        return len(labels), bool(Companions.fit(inputs, progress=progress))

    def tokens(self, encode: Encode | None = None, progress: Progress | None = None) -> int:
        """Tokenise all texts and keep them; return the number of tokens.

        Args:
            encode: Tokenises batches of texts, such as on other machines.
            progress: Receives the number of texts that are done.
        """
        tokenizer = self._tokenizer()
        if tokenizer is None:
            return 0
        length = self.recipe.encoder.tokens_read
        stores = [
            tokenise(corpus, tokenizer, max_length=length, encode=encode, progress=progress)
            for corpus in self._sets()
        ]
        return int(sum(store.lengths.sum() for store in stores))

    def _sets(self) -> Iterator[Corpus]:
        """Yield the texts as a run reads them: it may hold some out of the training texts."""
        if self.dev is None:
            labels = build_label_space(self.recipe, self.train, self.table)
            held_out = hold_out(self.train, labels, seed=self.recipe.train.seed)
            if held_out is not None:
                yield from map(self.train.take, held_out)
                return
        yield self.train
        if self.dev is not None:
            yield self.dev

    def _tokenizer(self) -> TextTokenizer | None:
        recipe = self.recipe
        if recipe.reads_words_alone or recipe.encoder.name == NO_ENCODER:
            return None
        if recipe.reads_word_vectors:
            from glocal.encoders.word_tokenizer import WordTokenizer

            vectors = word_vectors(recipe, self.train, self.table)
            assert vectors is not None, "the recipe reads them"
            return WordTokenizer(vectors.lookup, len(vectors.matrix))
        from glocal.encoders.loading import load_encoder_tokenizer

        return load_encoder_tokenizer(recipe.encoder.name)


def prepare_data(
    preparation: Preparation,
    *,
    progress: StagedProgress = silent,
) -> Prepared:
    """Fill the cache with what a training of these texts needs, in this process.

    Args:
        preparation: The texts and the recipe.
        progress: Returns the progress callback of a stage.

    Raises:
        ConfigError: The recipe breaks a rule.
        DataError: The cache cannot be written to.
    """
    found = preparation.checked()
    tokens = found.tokens(progress=progress("texts tokenised"))
    labels, words = found.words(progress)
    return Prepared(n_texts(found), labels, tokens, words)


def n_texts(preparation: Preparation) -> int:
    """Return the number of texts."""
    return len(preparation.train) + len(preparation.dev or ())
