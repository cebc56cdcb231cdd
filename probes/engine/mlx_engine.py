"""The real engine: prefills prompts with an mlx-lm model, cuts its state into blocks and puts them back.

Importing this module loads neither mlx nor mlx-lm; `MLXEngine.load` does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, brief
from ..models.hub import snapshot
from ..tokenization.token_range import TokenRange
from .mlx_model import COUNT_INSTEAD, LoadedModel, load
from .states import ModelState, Recorder, StateBlock, StateLayout, refusals

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..models.model import FoundModel, ReplayModel
    from ..tokenization.tokens import Ids

CHUNK = 512
#: Numbers that share a scale where nothing else is asked for, as in mlx-lm.
KV_GROUP_SIZE = 64


class OutOfTime(Exception):
    """A prefill was given up between two chunks, because its deadline had passed."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """One prompt's prefill.

    Attributes:
        payloads: the state of each span that was asked for, in the same order; where none were, the prompt's
            last full blocks, without those restored.
        logits: of the prompt's last position, float32, shape `(vocabulary,)`.
        seconds: measured wall time of the model's run over the prompt's tokens that were not reused.
        restore_seconds: measured wall time of putting the reused blocks back.
        store_seconds: measured wall time of cutting out `payloads`.
        output_seconds: measured wall time of the model's run over the output, in chunks: less than a server
            takes to generate it.
        peak_bytes: the most memory that MLX held at any time of it, weights included, as MLX measures it.
    """

    payloads: tuple[StateBlock, ...]
    logits: npt.NDArray[np.float32]
    seconds: float
    restore_seconds: float
    store_seconds: float
    output_seconds: float = 0.0
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Verification:
    """A prefill from restored blocks beside a cold one of the same prompt.

    Attributes:
        difference: largest absolute difference between their logits.
        noise: the same between two cold prefills in chunks of different size. Where K and V are quantised it
            counts as at least a tenth of a step (`2**-bits`) of the logits' standard deviation: a number that
            happens to round the other way moves everything after it, and two prefills seldom show that.
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


def load_engine(
    model: FoundModel | ReplayModel, *, kv_bits: int | None = None, kv_group_size: int = KV_GROUP_SIZE
) -> MLXEngine:
    """Load a model's weights, after downloading what is missing of a model of the hub.

    Raises:
        InputError: they cannot be had or loaded, or the architecture cannot be replayed.
    """
    return MLXEngine.load(
        snapshot(model.source) if model.kind == "hub" else model.directory,
        random_weights=model.weights is None,
        kv_bits=kv_bits,
        kv_group_size=kv_group_size,
    )


class MLXEngine:
    """A loaded model. `load` makes one.

    Attributes:
        path: the model directory.
        blas: what multiplies matrices: `openblas`, `bundled` (the reference BLAS in mlx's own wheel),
            `accelerate`, `metal` or `cuda`.
        precision: what the weights are and what was done to them, for people.
        layout: what the model's state takes, measured on the model's own caches.
        vocabulary: number of token ids that the model has logits for.
    """

    def __init__(
        self, loaded: LoadedModel, *, kv_bits: int | None = None, kv_group_size: int = KV_GROUP_SIZE
    ) -> None:
        import numpy as np

        self._model = loaded.model
        self._kv_bits = kv_bits
        self._kv_group_size = kv_group_size
        self._warm = False
        self.path = loaded.path
        self.blas = loaded.blas
        self.precision = loaded.precision
        caches = self._empty_caches()
        if refused := refusals(caches):
            raise InputError(
                f"the model's state cannot be restored exactly: {'; '.join(refused)}",
                where=str(self.path),
                fix=COUNT_INSTEAD,
            )
        state = ModelState(caches)
        try:
            logits = self._run(np.zeros(2, np.int32), state, 0, CHUNK)
        except Exception as error:
            raise InputError(
                f"the model fails on a prompt of two tokens ({brief(error)})",
                where=str(self.path),
                fix=COUNT_INSTEAD,
            ) from error
        if any(part.offset not in (None, 2) for part in state.parts):
            raise InputError(
                "some layers leave their cache empty, so that what they do cannot be restored",
                where=str(self.path),
                fix=COUNT_INSTEAD,
            )
        self.vocabulary = len(logits)
        self.layout: StateLayout = state.layout()

    @property
    def model_kind(self) -> str:
        """What the layers keep: `plain`, `rotating:512`, `hybrid`, ...; see `StateLayout.kind`."""
        return self.layout.kind

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V per token over all layers of full attention, measured."""
        return self.layout.bytes_per_token

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        random_weights: bool = False,
        seed: int = 0,
        kv_bits: int | None = None,
        kv_group_size: int = KV_GROUP_SIZE,
    ) -> MLXEngine:
        """Load a model directory.

        Args:
            path: see `mlx_model.load`.
            random_weights: see there.
            seed: see there.
            kv_bits: quantise K and V of full attention to so many bits, or None. Unlike mlx-lm's `--kv-bits`,
                which by default starts at the end of the chunk that reaches token 5,000, this starts at the
                first token: only then does the state not depend on how the prompt was split.
            kv_group_size: numbers that share a scale.

        Raises:
            InputError: it cannot be loaded, or its layers keep something that cannot be restored exactly.
        """
        loaded = load(path, random_weights=random_weights, seed=seed)
        return cls(loaded, kv_bits=kv_bits, kv_group_size=kv_group_size)

    def prefill(
        self,
        ids: Ids,
        restored: Sequence[StateBlock] = (),
        reused: int = 0,
        *,
        block_size: int = 256,
        chunk: int = CHUNK,
        spans: Sequence[TokenRange] | None = None,
        output: Ids | None = None,
        deadline: float | None = None,
    ) -> Prefill:
        """Put blocks back, run the model over the rest of a prompt, and cut the new blocks out.

        An interrupt ends it between two chunks and leaves nothing behind. Before the first prefill, an
        untimed one of the prompt's beginning warms the machine up.

        Args:
            ids: the prompt, shape `(n,)`.
            restored: the blocks of its beginning, without gaps.
            reused: tokens to take from `restored`, fewer than `n`.
            block_size: tokens per block where no spans are given.
            chunk: the most tokens that run at once.
            spans: what to cut out, by rising end; they may overlap. Where the state cannot be cut at any
                token, a chunk ends at each of their snapshots, and what cannot be cut is kept for those
                positions only. None for the full blocks that were not restored, with snapshots.
            output: tokens after the prompt that are stored with it, shape `(m,)`.
            deadline: time of `time.monotonic` after which no further chunk runs; None for no limit.

        Raises:
            OutOfTime: the deadline passed before the end.
            InputError: the prompt is empty, or has ids that the model does not know.
            ValueError: `reused` is not between 0 and what the blocks and the prompt have, the blocks do not
                hold all that is needed to go on there, or a span ends behind the sequence.
        """
        import mlx.core as mx
        import numpy as np

        self._check(ids)
        whole = ids if output is None else np.concatenate([ids, output])
        self._check(whole[len(ids) :], empty=True, fix="see the token_ids of the transcript's replies")
        held = restored[-1].end if restored else 0
        if not 0 <= reused <= min(len(ids) - 1, held):
            raise ValueError(f"cannot reuse {reused} of {len(ids)} tokens from blocks that hold {held}")
        if spans is None:
            first = len(restored) if self.layout.trimmable else reused // block_size
            starts = range(first * block_size, len(whole) - block_size + 1, block_size)
            spans = [TokenRange(start, start + block_size, snapshot=True) for start in starts]
        if spans and spans[-1].end > len(whole):
            raise ValueError(f"a span ends at {spans[-1].end}, behind the {len(whole)} tokens there are")
        if not self._warm:
            self._run(ids[:chunk], self._new_state(), 0, chunk, deadline=deadline)
            self._warm = True

        mx.reset_peak_memory()
        started = time.perf_counter()
        state = self._new_state()
        state.restore(restored, reused)
        ready = time.perf_counter()
        recorder = Recorder(state, reused, spans)
        logits = self._run(ids, state, reused, chunk, recorder, deadline)
        seconds = time.perf_counter() - ready - recorder.seconds
        output_seconds = 0.0
        if len(whole) > len(ids):
            resumed, copying = time.perf_counter(), recorder.seconds
            self._run(whole, state, len(ids), chunk, recorder, deadline)
            output_seconds = time.perf_counter() - resumed - (recorder.seconds - copying)
        payloads = recorder.blocks()
        store_seconds, peak = recorder.seconds, mx.get_peak_memory()
        # mlx would keep the state's memory for arrays of the same size, beside the next prompt's state.
        del state, recorder
        mx.clear_cache()
        return Prefill(
            payloads=payloads,
            logits=logits,
            seconds=seconds,
            restore_seconds=ready - started,
            store_seconds=store_seconds,
            output_seconds=output_seconds,
            peak_bytes=peak,
        )

    def resumable(self, blocks: Sequence[StateBlock], limit: int) -> int:
        """Return the last position, at most `limit`, at which a prompt can go on from blocks; 0 for none.

        Args:
            blocks: a prompt's blocks from its first token on, without gaps.
            limit: the most tokens that are wanted.
        """
        return self._new_state().resumable(blocks, limit)

    def verify(
        self,
        ids: Ids,
        logits: npt.NDArray[np.float32],
        *,
        chunk: int = CHUNK,
        deadline: float | None = None,
    ) -> Verification:
        """Compare the logits of a prefill from restored blocks with those of cold prefills.

        Args:
            ids: the prompt, shape `(n,)`.
            logits: what `prefill` gave for it, shape `(vocabulary,)`.
            chunk: what that prefill ran with.
            deadline: as of `prefill`.

        Raises:
            OutOfTime: the deadline passed before the end.
        """
        self._check(ids)
        cold = self._run(ids, self._new_state(), 0, chunk, deadline=deadline)
        # The other chunking has to differ for short prompts too, or there would be no noise to see. A
        # multiple of 16 would hide it: OpenBLAS computes whole tiles of rows alike wherever they stand.
        other = max(1, min(3 * chunk // 8 - 1, (len(ids) - 1) // 2))
        again = self._run(ids, self._new_state(), 0, other, deadline=deadline)
        step = 0.0 if self._kv_bits is None else 2.0**-self._kv_bits * float(cold.std())
        return Verification(
            difference=float(abs(logits - cold).max()),
            noise=max(float(abs(again - cold).max()), step / 10),
            argmax_equal=bool(logits.argmax() == cold.argmax()),
        )

    def _check(self, ids: Ids, *, empty: bool = False, fix: str = "use the model's own tokenizer") -> None:
        if not len(ids) and not empty:
            raise InputError("the prompt has no tokens", fix="check what the template renders")
        # mlx reads outside the embedding without complaint.
        unknown = ids[(ids < 0) | (ids >= self.vocabulary)]
        if len(unknown):
            raise InputError(
                f"there is a token id {unknown[0]}, but the model has only {self.vocabulary} ids",
                where=str(self.path),
                fix=fix,
            )

    def _new_state(self) -> ModelState:
        return ModelState(self._empty_caches())

    def _empty_caches(self) -> list[Any]:
        """Return the model's own cache objects, one per layer, quantised where that was asked for."""
        from mlx_lm.models.cache import KVCache, make_prompt_cache

        caches = list(make_prompt_cache(self._model))
        if self._kv_bits is None:
            return caches
        # As in mlx-lm, which leaves other kinds and what is inside a CacheList as they are.
        plain = [type(cache) is KVCache for cache in caches]
        sliding = sorted({type(cache).__name__ for cache in caches if hasattr(cache, "max_size")})
        if sliding or not any(plain):
            what = f"layers with {sliding[0]}" if sliding else "this model's layers"
            raise InputError(
                f"{what} cannot keep quantised K and V", where=str(self.path), fix="leave the bits out"
            )
        return [
            cache.to_quantized(group_size=self._kv_group_size, bits=self._kv_bits) if is_plain else cache
            for cache, is_plain in zip(caches, plain, strict=True)
        ]

    def _run(
        self,
        ids: Ids,
        state: ModelState,
        start: int,
        chunk: int,
        recorder: Recorder | None = None,
        deadline: float | None = None,
    ) -> npt.NDArray[np.float32]:
        """Run the model over `ids[start:]` and return the last position's logits, float32, `(vocabulary,)`.

        The last token runs alone, as in mlx-lm: no other position's logits are computed.
        """
        import mlx.core as mx
        import numpy as np

        stops = set(recorder.stops if recorder else ())
        last = len(ids) - 1
        for begin, end in _chunks(start, last, chunk, sorted(stops)):
            if deadline is not None and time.monotonic() > deadline:
                raise OutOfTime
            self._model(mx.array(ids[begin:end])[None], cache=state.caches)
            mx.eval(state.arrays())
            mx.clear_cache()
            if recorder and end in stops:
                recorder.record(end)
        logits = self._model(mx.array(ids[last:])[None], cache=state.caches)[0, -1].astype(mx.float32)
        mx.eval(logits, state.arrays())
        mx.clear_cache()
        if recorder and len(ids) in stops:
            recorder.record(len(ids))
        return np.array(logits)


def _chunks(start: int, end: int, chunk: int, stops: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield what runs at once between two positions: at most `chunk` tokens, and none beyond a stop."""
    for stop in [*(at for at in stops if start < at < end), end]:
        while start < stop:
            yield start, min(start + chunk, stop)
            start = min(start + chunk, stop)
