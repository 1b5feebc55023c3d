"""Units of work: what they are, how one is attempted, how many are shared between threads and processes."""
