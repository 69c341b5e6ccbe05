"""Decodes uploads of Parquet and Arrow IPC in a child process, which turns them into the text of a CSV upload."""
