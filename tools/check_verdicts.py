#!/usr/bin/env python3
"""Check a run folder against its traces: every line is a whole verdict or a typed failure, every quote is in its answer.

  check_verdicts.py TRACES.jsonl RUN_FOLDER

Prints one line of counts; exits 1 where anything is malformed.
"""
import json
import pathlib
import sys

FIELDS = ["label", "expected", "distribution", "mass", "entropy", "margin", "rationale", "evidence", "raw", "tokens", "milliseconds"]


def main():
    traces, folder = sys.argv[1:3]
    answers = {}
    for number, line in enumerate(open(traces, encoding="utf-8"), 1):
        item = json.loads(line)
        answers[str(item.get("id", number))] = item["answer"].encode()
    counts = {"verdicts": 0, "failures": 0, "malformed": 0, "quotes": 0, "fabricated": 0, "low_mass": 0}
    for line in open(pathlib.Path(folder) / "verdicts.jsonl", encoding="utf-8"):
        verdict = json.loads(line)
        if "failure" in verdict:
            counts["failures"] += 1
            continue
        counts["verdicts"] += 1
        raw = json.loads(verdict["raw"])
        label = str(raw.get("score", raw.get("verdict")))
        whole = all(field in verdict for field in FIELDS) and label == verdict["label"]
        whole &= abs(sum(verdict["distribution"].values()) - 1) < 1e-9 and 0 <= verdict["mass"] <= 1
        whole &= [quote["quote"] for quote in verdict["evidence"]] == raw.get("evidence", [])
        counts["malformed"] += not whole
        counts["low_mass"] += verdict["low_mass"]
        for quote in verdict["evidence"]:
            counts["quotes"] += 1
            found = answers[verdict["item"]][quote["start"]:quote["end"]]
            counts["fabricated"] += found != quote["quote"].encode()
    print(json.dumps({"items": len(answers)} | counts))
    return 1 if counts["malformed"] or counts["fabricated"] else 0


if __name__ == "__main__":
    sys.exit(main())
