#!/usr/bin/env python3
"""The table of `.ci/device.sh`, from the JSON lines that its steps left in a folder."""
import json
import pathlib
import sys


def lines(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def main():
    folder = pathlib.Path(sys.argv[1])
    rows = []
    for path in sorted(folder.glob("parity-*.json")):
        name = path.stem.removeprefix("parity-")
        for check in lines(path):
            state = "holds" if check["holds"] else "FAILS"
            if check["check"] == "logits":
                what = f"batch {check['batch']}, prefix {check['prefix']}"
                found = f"{check['mean_nats']:.1e} nats, at most {check['most_nats']:.1e}, relative {check['relative']:.1e}, same top {check['same_top']}/{check['rows']}"
            else:
                what, found = f"labels of {check['rows']} rows", f"off by {check['most']:.1e} at most"
            rows.append((f"parity {name}", what, found, state))
    for path in sorted(folder.glob("speed-*.json")):
        plan = path.stem.removeprefix("speed-")
        for speed in lines(path):
            limits = f"{speed['dot_operations_per_second'] / 1e12:.0f} TFLOP/s, {speed['read_bytes_per_second'] / 1e9:.0f} GB/s"
            rows.append((f"13B {plan}", "ceilings in this run", limits, ""))
            for test in speed["tests"]:
                what = f"prefill {test['tokens']}" if test["test"] == "prefill" else f"decode, batch {test['batch']}"
                found = f"{test['tokens_per_second']:.0f} tokens/s, {100 * test['share']:.0f} % of {test['limit']}"
                rows.append((f"13B {plan}", what, found, ""))
    best = 0.0
    for check in lines(folder / "peer.json"):
        best = max(best, check["verdicts_per_second"])
        rows.append((check["peer"], f"generate, batch {check['batch']}", f"{check['verdicts_per_second']:.2f} verdicts/s", ""))
    for mode in ("json", "score"):
        for speed in lines(folder / f"rows-{mode}.json")[-1:]:
            rate = speed["verdicts_per_minute"] / 60
            times = f", {rate / best:.1f} x the peer" if best and mode == "json" else ""
            rows.append(("13B workload", f"{mode} mode, {speed['rows']} rows", f"{rate:.2f} verdicts/s{times}", f"failed {speed['failed']}"))
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    for row in rows:
        print("  ".join(part.ljust(width) for part, width in zip(row, widths)).rstrip())


if __name__ == "__main__":
    main()
