"""The command `igr`."""

INTERRUPTED = "Interrupted. Finished units are kept; run the same command to resume."
