"""The framework of all experiments: options as data, sweeps, tidy tables, figures, reports, and the command line."""

from .catalogue import EXPERIMENTS, Experiment, load, points
from .options import BadOption, Option, Point, Values, grid
from .running import Result, run
from .sweeping import PointFailed, sweep
from .tables import error
