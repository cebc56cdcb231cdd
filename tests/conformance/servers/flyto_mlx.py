"""flyto-mlx: a fork of oMLX, whose module names it kept."""

from __future__ import annotations

from ..bodies import ROUTES
from ..server import Compared, Server
from .omlx import omlx_routes

SERVER = Server(
    "flyto-mlx",
    "flyto-mlx",
    {route: Compared(route, f"flyto-mlx:route={route}") for route in ROUTES},
    lambda folder: omlx_routes(),
)
