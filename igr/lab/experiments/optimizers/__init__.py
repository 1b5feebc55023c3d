"""The modified equation of optimizers: every constructor beside its plain and its modified flow."""
