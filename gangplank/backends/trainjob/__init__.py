"""A job as a TrainJob of Trainer v2, which makes a JobSet of it."""
