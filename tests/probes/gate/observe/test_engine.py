PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"


def test_an_engine_that_disagrees(gate) -> None:
    base = PLAIN + "{{ messages|length }}"
    head = PLAIN + "{{ '%d' % (messages|length) }}"
    report = gate(base, head, llamacpp=True)
    assert all(subject.variant == "llama.cpp" for change in report.changes for subject in change.subjects)
    assert report.outcome in ("cosmetic", "regressed")
