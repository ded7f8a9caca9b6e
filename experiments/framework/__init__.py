"""The framework of all experiments: options as data, sweeps, tidy tables, figures, reports, and the command line."""

from .options import BadOption, Option, Point, Values, grid
from .running import Result, run
from .tables import error
