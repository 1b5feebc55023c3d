"""Configurations and the folders they are stored in: one for each unit of work, complete or not there."""
