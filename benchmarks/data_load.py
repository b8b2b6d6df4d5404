"""Seconds to load a cached data set, and memory after every image was read once.

A separate process loads each data set; memory is the growth of its peak resident set. Images are
read in batches of 256 and converted to floating point, as a solver does.
"""

import multiprocessing
import resource
import time

import torch

from benchmarks.measure import begin, finish, parser
from zeroone.data.load import load_data
from zeroone.data.registry import REGISTRY


def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def load_and_read(name, answer):
    torch.zeros(256, 3072).sum()
    before, started = peak(), time.perf_counter()
    split = load_data(name)
    seconds, loaded = time.perf_counter() - started, peak()
    total = 0.0
    for rows in torch.split(torch.from_numpy(split.X), 256):
        total += float(rows.float().sum())
    answer.put({"seconds": seconds, "load_bytes": loaded - before, "read_bytes": peak() - before})


def main():
    options = parser(__doc__.splitlines()[0]).parse_args()
    record = begin("data_load", options)
    record["result"] = {}
    context = multiprocessing.get_context("spawn")
    for name in REGISTRY:
        answer = context.Queue()
        process = context.Process(target=load_and_read, args=(name, answer))
        process.start()
        result = record["result"][name] = answer.get(timeout=120)
        process.join()
        print(
            f"{name}: loaded in {result['seconds']:.3f} s and {result['load_bytes'] / 1e6:.0f} MB, "
            f"{result['read_bytes'] / 1e6:.0f} MB after every image was read"
        )
    finish(record, options.json)


if __name__ == "__main__":
    main()
