"""Put trained networks into the model zoo: the integer form of each, and its card.

    python benchmarks/accuracy.py --suite zoo --methods bcd --seeds 1 --models runs/zoo \
        --json results/zoo.json
    python benchmarks/zoo.py runs/zoo --record results/zoo.json

Commit the files, the cards and the record together.
"""

import argparse
import json
from pathlib import Path

import zeroone
from paper.matrix.architectures import Architecture
from zeroone.commands.evaluate import evaluate_network
from zeroone.data.load import load_data
from zeroone.deploy import IntegerModel, quantise
from zeroone.deploy.zoo import CARDS, FOLDER

COMMANDS = [" ".join(line.split()) for line in __doc__.replace("\\\n", "").splitlines()[2:4]]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("models", type=Path, help="the folder of the trained networks")
    arguments.add_argument("--record", type=Path, required=True, help="what accuracy.py wrote")
    options = arguments.parse_args()
    record = json.loads(options.record.read_text(encoding="utf-8"))
    made = json.loads(CARDS.read_text(encoding="utf-8")) if CARDS.exists() else {}
    for cell in record["cells"]:
        name = "{data}-{architecture}-{method}-{seed}.safetensors".format(**cell)
        network = zeroone.load(options.models / name)
        model = IntegerModel(quantise(network))
        file = model.save(FOLDER / f"{cell['data']}.safetensors")
        error = evaluate_network(model, load_data(cell["data"]))["result"]["error"]
        made[cell["data"]] = {
            "data": cell["data"],
            "hidden": Architecture.parse(cell["architecture"]).hidden,
            "test_error": error,
            "test_error_before_rounding": cell["test_error"],
            "bytes": file.stat().st_size,
            "parameters": cell["parameters"],
            "seed": cell["seed"],
            "commit": cell["commit"],
            "machine": record["machine"],
            "seconds_per_epoch": cell["seconds_per_epoch"],
            "commands": COMMANDS,
        }
        print(f"zoo/{cell['data']}: error {100 * error:.2f}%, {file.stat().st_size:,} bytes")
    CARDS.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
