"""From an experiment file to a directory of runs: read, build, run, resume, deploy, and read again."""
