"""What is measured, and beside what."""
