"""What stored runs say: cohorts at a stopping time, statistics, findings, and all of it as a data frame."""

from igr.lab.analysis.frames import frame as frame
from igr.lab.analysis.frames import singles as singles
