"""A leg of the real deployment against a round of a stock Flower app, on the same machine.

Both have three hospitals, a tiny model, TLS and SuperNode authentication, as real processes. Stock
Flower runs FedAvg with a ClientApp that imports torch, set up as in its documentation. FedDC runs
with the commands of coordinator and hospital, with sealed hand-overs and plain averages: one model
each way, as in stock Flower. Both stay up and take turns; the time is from the end of one leg to
the end of the next. What secure averaging adds is measured by itself: in each turn FedDC also
averages in every leg, plainly and securely, which takes one message each way and three.

    python -m benchmarks.leg [--turns 2] [--stock-legs 3] [--legs 6] [--sum-legs 4] [--json]
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

from .support.processes import Processes
from .support.small_study import SmallStudy
from .support.stock_flower import StockFlower

HOSPITALS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--stock-legs", type=int, default=3, help="of each turn")
    parser.add_argument("--legs", type=int, default=6, help="of each turn, every third aggregates")
    parser.add_argument("--sum-legs", type=int, default=4, help="of each turn, plain and secure")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    stock: list[float] = []
    ours: list[float] = []
    sums: dict[str, list[float]] = {"plain": [], "secure": []}
    with ExitStack() as stack:
        # Short, because the path of a socket is limited to 107 bytes.
        folder = Path(tempfile.mkdtemp(prefix="fdc-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        (folder / "stock").mkdir()
        processes = stack.enter_context(Processes(folder))
        study = stack.enter_context(closing(SmallStudy(folder, processes, hospitals=HOSPITALS)))
        flower = StockFlower(folder / "stock", processes, nodes=HOSPITALS)
        for turn in range(arguments.turns):
            stock += flower.legs(arguments.stock_legs)
            ours += study.legs(arguments.legs, aggregation_period=3, averaging="plain")
            for averaging, seconds in sums.items():
                every_leg = {"daisy_period": 0, "aggregation_period": 1, "averaging": averaging}
                seconds += study.legs(arguments.sum_legs, **every_leg)
            if not arguments.json:
                sys.stderr.write(f"turn {turn + 1}: stock {stock}, FedDC {ours}, {sums}\n")
    stock_seconds, our_seconds = statistics.median(stock), statistics.median(ours)
    plain, secure = (statistics.median(seconds) for seconds in sums.values())
    result = {
        "leg_vs_stock_flower": round(our_seconds / stock_seconds, 3),
        "leg_seconds": round(our_seconds, 2),
        "stock_flower_seconds": round(stock_seconds, 2),
        "secure_vs_plain": round(secure / plain, 2),
        "secure_leg_seconds": round(secure, 2),
        "plain_leg_seconds": round(plain, 2),
        "legs": len(ours),
        "stock_flower_legs": len(stock),
        "hospitals": HOSPITALS,
        "measured": "medians, from the end of a leg to the end of the next, in turns of one run",
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        print(
            f"a leg: {our_seconds:.2f} s, stock Flower {stock_seconds:.2f} s: "
            f"{result['leg_vs_stock_flower']:.2f} of it; an aggregation: {secure:.2f} s secure, "
            f"{plain:.2f} s plain: {result['secure_vs_plain']:.1f} times"
        )


if __name__ == "__main__":
    main()
