"""Raw data of tasks: declaring, reading and checking a data set. The data sets are in ``tasks``."""
