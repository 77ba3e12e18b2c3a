"""What the clients hold: data sets, verified when loaded, and how they are shared out."""
