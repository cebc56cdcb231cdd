import pytest
from tplaudit.fixtures import transcript

CHAT = transcript("chat")


def test_another_version_beside_all() -> None:
    from tplaudit.cli.options import policy_names
    from tplaudit.probes.policies.registry import names

    assert policy_names(["omlx:version=x", "all", "omlx"]) == [*names(), "omlx:version=x"]


@pytest.mark.parametrize(
    ("arguments", "option", "follows"),
    [
        (("replay", CHAT, "--model", "--policy", "omlx"), "--model", "--policy"),
        (("replay", CHAT, "-p", "--json"), "--policy", "--json"),
        (("render", CHAT, "-m", "-p", "omlx"), "--model", "-p"),
        (("render", CHAT, "--output", "--json"), "--output", "--json"),
        (("probe", "x.jinja", "--kwargs", "--json"), "--kwargs", "--json"),
    ],
)
def test_an_option_that_took_the_next_one_for_its_value(tplaudit, arguments, option, follows) -> None:
    done = tplaudit(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    said = (
        f"tplaudit: {option}: its value is missing, and the option {follows} follows; write {option} VALUE\n"
    )
    assert done.stderr == said
