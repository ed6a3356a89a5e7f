"""Text becomes checked values; pure but for files.py, and without any notion of a job."""
