"""From an experiment file to a directory of runs: load, build, run, resume, deploy, and read the results."""
