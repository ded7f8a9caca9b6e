"""Sweeps: one measurement for each of many points, in parallel, and how sure the means over seeds are.

    found = gather(points, measure, jobs=4)      # a row for each point; `measure` is called in other processes
    kept = KeptRows(folder, points, made_of)     # those of an earlier sweep, which are not measured again
    means = summarised(table, numbers, "fifo")   # means, their confidence intervals, and paired differences

gathering   calls, progress, processes, Ctrl-C
kept_rows   the file of finished rows
confidence  Student's t, as a table, text and picture
"""

from .confidence import picture, summarised, text
from .gathering import Gathered, Point, Row, cores, gather, processes
from .kept_rows import KeptRows, checksum
