from __future__ import annotations

from typing import Any

from ferry_sessions import model, replayed

Messages = list[dict[str, Any]]


def test_ids_on_both_sides_of_a_boundary() -> None:
    loaded = model(
        "{%- for m in messages %}{{ m.role + ' ' + m.content + '\\n' }}{% endfor -%}"
        "{%- if add_generation_prompt %}{{ 'assistant ' }}{% endif -%}"
    )
    first: Messages = [{"role": "user", "content": "Which way?"}]
    second = [*first, {"role": "assistant", "content": "that way"}, {"role": "user", "content": "Thanks."}]
    turn = replayed(loaded, [first, second], block_size=1).turns[1]
    parted, since = turn.divergence, turn.since_previous
    assert parted is not None and since is not None
    assert since.generation_prompt_shared
    assert since.cause == parted.cause == "tokenizer-boundary"
    assert parted.confirmed is True
    texts = [loaded.template.render(each) for each in (first, second)]
    assert texts[1].startswith(texts[0])
    one, other = (list(loaded.tokenizer.encode(text)) for text in texts)
    assert parted.stored_ids == tuple(one[parted.tokens : parted.tokens + 8])
    assert parted.prompt_ids == tuple(other[parted.tokens : parted.tokens + 8])
    assert parted.stored_ids[0] != parted.prompt_ids[0]
    assert str(parted.stored_ids[0]) in (parted.evidence or "")
