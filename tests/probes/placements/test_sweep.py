from pathlib import Path

from tplaudit.fixtures import TEMPLATES
from tplaudit.probes.models.template_info import Failure
from tplaudit.probes.placements.sweep import ProbeSettings, probe_input, sweep

SUM = "{{ 1" + "+1" * 20_000 + " }}"


def test_a_sweep_in_processes_gives_what_one_process_gives(tmp_path: Path) -> None:
    names = [str(each) for each in sorted(TEMPLATES.glob("*.jinja"))[:3]]
    bad = tmp_path / "bad.jinja"
    bad.write_text("{{")
    *found, failed = sweep([*names, str(bad)], ProbeSettings(), 2)
    assert found == [probe_input(name, ProbeSettings()) for name in names]
    assert isinstance(failed, Failure) and "not a valid chat template" in failed.error


def test_a_sweep_survives_a_bad_member(tmp_path: Path) -> None:
    (tmp_path / "a.jinja").write_text(SUM)
    (tmp_path / "b.jinja").write_text("{# nothing #}")
    first, second = sweep([str(tmp_path / "a.jinja"), str(tmp_path / "b.jinja")], ProbeSettings())
    assert isinstance(first, Failure) and "nested too deeply" in first.error
    assert isinstance(second, Failure) and "renders nothing" in second.error
