"""The closest stored sequence is the one that a comparison with all of them finds."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tplaudit.probes.caches.stored_sequences import StoredSequences
from tplaudit.probes.tokenization.tokens import common_prefix_ids


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_closest_is_what_comparing_with_each_gives(data: st.DataObject) -> None:
    stored = StoredSequences()
    known: list[np.ndarray] = []
    for turn in range(1, data.draw(st.integers(2, 8)) + 1):
        # go on from the beginning of any earlier sequence, as retries, branches and growing prompts do
        start = (
            data.draw(st.sampled_from(known)) if known and data.draw(st.booleans()) else np.empty(0, np.int32)
        )
        kept = start[: data.draw(st.integers(0, len(start)))]
        tail = data.draw(st.lists(st.integers(0, 2), max_size=4))
        ids = np.concatenate((kept, np.array(tail, np.int32))).astype(np.int32)
        closest = stored.closest(ids)
        shared = [common_prefix_ids(each, ids) for each in known]
        most = max(shared, default=0)
        assert closest.shared == most
        if known:
            assert closest.turn == max(at for at, count in enumerate(shared, 1) if count == most)
            assert closest.fully_matched == any(
                len(each) == most for each, count in zip(known, shared, strict=True) if count == most
            )
        else:
            assert closest.turn is None
        stored.add(turn, ids)
        known.append(ids)
        assert stored.sequence(turn).tolist() == ids.tolist()
