"""Simulations: how far they are, and what came out."""

from __future__ import annotations

from litestar.params import FromPath, FromQuery

from penstock.console.api.endpoint import Listing, Routes, read, whole
from penstock.console.computing.simulations import Simulation
from penstock.console.parts import Console


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    kept = console.computing.simulations

    @read("/simulations")
    async def simulations(pool: FromQuery[str] = "") -> Listing[Simulation]:
        """Simulations that this console keeps, newest first."""
        return whole(console, kept.newest_first(pool))

    @read("/simulations/{simulation_id:str}")
    async def simulation(simulation_id: FromPath[str]) -> Simulation:
        """One simulation, for an hour after its end and while its console runs; then 410."""
        return kept.get(simulation_id)

    return simulations, simulation
