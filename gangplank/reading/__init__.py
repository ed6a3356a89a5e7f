"""Text becomes checked values; pure but for files.py, knows no job."""
