"""Builds and checks the families: `python -m families OUT --command FILE --library FILE` from tests/."""
import argparse
import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="")

from families.table import put, table  # noqa: E402
from families.variants import all_names  # noqa: E402


def main():
    parser = argparse.ArgumentParser(prog="python -m families", description=__doc__)
    parser.add_argument("out", type=Path, help="where models, folders and results go; what is there is used again")
    parser.add_argument("--command", type=Path, required=True, help="amdgpu-ep")
    parser.add_argument("--library", type=Path, required=True, help="libamdgpu-ep.so")
    parser.add_argument("--only", default="", help="FAMILY.VARIANT or beginnings of it, separated by commas")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="writes the table to this page if all folders ran")
    parser.add_argument("--jobs", type=int, default=2, help="how many folders are checked at a time")
    parser.add_argument("--list", action="store_true", help="prints the names and ends")
    arguments = parser.parse_args()
    starts = tuple(start for start in arguments.only.split(",") if start)
    names = [name for name in all_names() if not starts or ".".join(name).startswith(starts)]
    if arguments.list:
        print("\n".join(map(".".join, names)))
        return 0
    import torch

    from families.check import Checker

    torch.set_num_threads(1)
    checker = Checker(arguments.out.resolve(), arguments.command.resolve(), arguments.library.resolve())
    rows = []
    with ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("fork")) as pool:
        for row in pool.map(checker.check, *zip(*names, strict=True)):
            rows.append(row)
            state = ("right" if row["right"] else "NOT RIGHT") if row["counts"] else "not counted"
            found = row.get("placement", {})
            where = found.get("error") or "{device} of {total} nodes, partitions: {partitions}".format(**found) if found else ""
            print(f"{row['family']}.{row['variant']}: {state}; {where}; {'; '.join(row['why'])}", flush=True)
            (arguments.out / "rows.json").write_text(json.dumps(rows, indent=1))
    counted = [row for row in rows if row["counts"]]
    if arguments.write and not starts:
        arguments.write.write_text(put(arguments.write.read_text(), table(rows)))
    print(f"{sum(row['right'] for row in counted)} of {len(counted)} folders are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
