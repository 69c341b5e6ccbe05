"""Tests that the memory of an ingestion does not grow with the upload."""

import json
import subprocess
import sys

PROGRAM = """
import io, json, resource, sys, tempfile
from pathlib import Path
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from tests.support.uploads import HEADER, GOOD_ROW, Ingestion

class LongBody(io.RawIOBase):
    # A header and n megabytes of rows, made block by block.
    def __init__(self, megabytes):
        self.left = megabytes
        self.block = GOOD_ROW.encode() * (1_000_000 // len(GOOD_ROW))
        self.waiting = HEADER.encode()

    def seek(self, offset, whence=io.SEEK_SET):
        return self.left * 1_000_000 if whence == io.SEEK_END else 0

    def read(self, size=-1):
        if not self.waiting and self.left:
            self.left -= 1
            self.waiting = self.block
        piece, self.waiting = self.waiting[:size], self.waiting[size:]
        return piece

def peak_after(megabytes):
    with tempfile.TemporaryDirectory() as home:
        ingestion = Ingestion(Path(home))
        ingestion.partitions = Partitions(())
        report = ingestion(LongBody(megabytes))
        assert report.n_rows == megabytes * (1_000_000 // len(GOOD_ROW))
    return peak()

def peak():
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Not ru_maxrss, which on Linux starts at the size of the parent process.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

print(json.dumps([peak_after(40), peak_after(100)]))
"""


def test_memory_does_not_grow_with_the_upload():
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, check=True, timeout=600
    )
    short, long = json.loads(answer.stdout)
    # The longer body has sixty megabytes more. The shorter body, too, fills the 32
    # blocks that the parser reads ahead.
    assert long - short < 25_000_000
    assert long < 400_000_000
