"""The clients' data: data sets, verified when loaded, and how they are partitioned."""
