"""The real engine: prefills prompts with an mlx-lm model, cuts its state into blocks and puts them back.

Importing this module loads neither mlx nor mlx-lm; `MLXEngine.load` does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .caches import kv
from .errors import InputError
from .mlx_model import COUNT_INSTEAD, LoadedModel, brief, load

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .tokens import Ids

CHUNK = 512


@dataclass(frozen=True, slots=True)
class Prefill:
    """One prompt's prefill.

    Attributes:
        payloads: the blocks that were computed: the prompt's last full ones, without those restored.
        logits: of the prompt's last position, float32, shape `(vocabulary,)`.
        seconds: measured wall time of the model's run over the tokens that were not reused.
        restore_seconds: measured wall time of putting the reused blocks back.
        store_seconds: measured wall time of cutting out `payloads`.
    """

    payloads: tuple[kv.KVBlock, ...]
    logits: npt.NDArray[np.float32]
    seconds: float
    restore_seconds: float
    store_seconds: float


@dataclass(frozen=True, slots=True)
class Verification:
    """A prefill from restored blocks beside a cold one of the same prompt.

    Attributes:
        difference: largest absolute difference between their logits.
        noise: the same between two cold prefills in chunks of different size.
        argmax_equal: both would go on with the same token.
    """

    difference: float
    noise: float
    argmax_equal: bool

    @property
    def tolerance(self) -> float:
        """The difference that rounding explains."""
        return tolerance(self.noise)

    @property
    def passed(self) -> bool:
        """Whether the restored state is the cold one, up to rounding."""
        return self.argmax_equal and self.difference <= self.tolerance


def tolerance(noise: float) -> float:
    """Return the largest difference of logits that the measured noise between cold prefills excuses."""
    return 10 * max(noise, 1e-6)


class MLXEngine:
    """A loaded model. `load` makes one.

    Attributes:
        path: the model directory.
        blas: what multiplies matrices: `openblas`, `bundled` (the reference BLAS in mlx's own wheel),
            `accelerate`, `metal` or `cuda`.
        precision: what the weights are and what was done to them, for people.
        bytes_per_token: bytes of K and V per token over all layers, measured on the model's own caches.
        vocabulary: number of token ids that the model has logits for.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        import numpy as np

        self._model = loaded.model
        self._warm = False
        self.path = loaded.path
        self.blas = loaded.blas
        self.precision = loaded.precision
        caches = self._empty_caches()
        if refused := kv.unsupported(caches):
            raise InputError(
                f"layers with {' and '.join(refused)} are not replayed on the real engine yet",
                where=str(self.path),
                fix=COUNT_INSTEAD,
            )
        try:
            logits = self._run(np.zeros(2, np.int32), caches, 0, CHUNK)
        except Exception as error:
            raise InputError(
                f"the model fails on a prompt of two tokens ({brief(error)})",
                where=str(self.path),
                fix=COUNT_INSTEAD,
            ) from error
        if any(cache.offset != 2 for cache in caches):
            raise InputError(
                "some layers leave their KVCache empty, which is not replayed on the real engine yet",
                where=str(self.path),
                fix=COUNT_INSTEAD,
            )
        self.vocabulary = len(logits)
        self.bytes_per_token = sum(array.nbytes // array.shape[2] for array in kv.arrays(caches))

    @classmethod
    def load(cls, path: str | Path, *, random_weights: bool = False, seed: int = 0) -> MLXEngine:
        """Load a model directory; see `mlx_model.load` for the arguments.

        Raises:
            InputError: it cannot be loaded, or its layers keep something else than K and V.
        """
        return cls(load(path, random_weights=random_weights, seed=seed))

    def prefill(
        self,
        ids: Ids,
        restored: Sequence[kv.KVBlock] = (),
        reused: int = 0,
        *,
        block_size: int = 256,
        chunk: int = CHUNK,
    ) -> Prefill:
        """Put blocks back, run the model over the rest of a prompt, and cut the new blocks out.

        An interrupt ends it between two chunks and leaves nothing behind. Before the first prefill, an
        untimed one of the prompt's beginning warms the machine up.

        Args:
            ids: the prompt, shape `(n,)`.
            restored: the blocks of its beginning.
            reused: tokens to take from `restored`, fewer than `n`.
            block_size: tokens per block.
            chunk: the most tokens that run at once.

        Raises:
            InputError: the prompt is empty, or has ids that the model does not know.
            ValueError: `reused` is not between 0 and what the blocks and the prompt have.
        """
        self._check(ids)
        if not 0 <= reused <= min(len(ids) - 1, len(restored) * block_size):
            raise ValueError(f"cannot reuse {reused} of {len(ids)} tokens from {len(restored)} blocks")
        if not self._warm:
            self._run(ids[:chunk], self._empty_caches(), 0, chunk)
            self._warm = True

        started = time.perf_counter()
        caches = self._empty_caches()
        kv.restore(caches, restored, reused)
        ready = time.perf_counter()
        logits = self._run(ids, caches, reused, chunk)
        computed = time.perf_counter()
        starts = range(len(restored) * block_size, len(ids) - block_size + 1, block_size)
        payloads = kv.capture(caches, starts, block_size)
        cut = time.perf_counter()
        return Prefill(
            payloads=payloads,
            logits=logits,
            seconds=computed - ready,
            restore_seconds=ready - started,
            store_seconds=cut - computed,
        )

    def verify(self, ids: Ids, logits: npt.NDArray[np.float32], *, chunk: int = CHUNK) -> Verification:
        """Compare the logits of a prefill from restored blocks with those of cold prefills.

        Args:
            ids: the prompt, shape `(n,)`.
            logits: what `prefill` gave for it, shape `(vocabulary,)`.
            chunk: what that prefill ran with.
        """
        self._check(ids)
        cold = self._run(ids, self._empty_caches(), 0, chunk)
        # The other chunking has to differ for short prompts too, or there would be no noise to see.
        other = max(1, min(3 * chunk // 8, (len(ids) - 1) // 2))
        again = self._run(ids, self._empty_caches(), 0, other)
        return Verification(
            difference=float(abs(logits - cold).max()),
            noise=float(abs(again - cold).max()),
            argmax_equal=bool(logits.argmax() == cold.argmax()),
        )

    def _check(self, ids: Ids) -> None:
        if not len(ids):
            raise InputError("the prompt has no tokens", fix="check what the template renders")
        # mlx reads outside the embedding without complaint.
        unknown = ids[(ids < 0) | (ids >= self.vocabulary)]
        if len(unknown):
            raise InputError(
                f"the prompt has token id {unknown[0]}, but the model has only {self.vocabulary} ids",
                where=str(self.path),
                fix="use the model's own tokenizer",
            )

    def _empty_caches(self) -> list[Any]:
        """Return the model's own cache objects, one per layer."""
        from mlx_lm.models.cache import make_prompt_cache

        return list(make_prompt_cache(self._model))

    def _run(self, ids: Ids, caches: list[Any], start: int, chunk: int) -> npt.NDArray[np.float32]:
        """Run the model over `ids[start:]` and return the last position's logits, float32, `(vocabulary,)`.

        The last token runs alone, as in mlx-lm: no other position's logits are computed.
        """
        import mlx.core as mx
        import numpy as np

        last = len(ids) - 1
        for at in range(start, last, chunk):
            self._model(mx.array(ids[at : min(at + chunk, last)])[None], cache=caches)
            mx.eval(kv.arrays(caches))
            mx.clear_cache()
        logits = self._model(mx.array(ids[last:])[None], cache=caches)[0, -1].astype(mx.float32)
        mx.eval(logits, kv.arrays(caches))
        mx.clear_cache()
        return np.array(logits)
