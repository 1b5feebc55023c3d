"""The laboratory: data, models, sweeps, experiments, figures and the report. It uses `igr`, never the reverse."""
