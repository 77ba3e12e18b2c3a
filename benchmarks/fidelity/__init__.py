"""Does the simulation tell the truth about a real fleet? A federation on loopback beside audits of its fleet."""
