#!/usr/bin/env python3
"""Turn pairwise evaluation data into pointwise traces for `assize judge`, one answer a row.

  rows.py llmbar  Natural.json          --rows 50 > llmbar.jsonl
  rows.py pandalm testset-v1-even.json  --rows 50 > pandalm.jsonl

Rows alternate between the first and the second answer; `label` says whether the human judges preferred it.
"""
import argparse
import json
import sys


def llmbar(row, second):
    preferred = row["label"] == (2 if second else 1)
    return row["input"], row["output_2" if second else "output_1"], "better" if preferred else "worse"


def pandalm(row, second):
    votes = [row[f"annotator{n}"] for n in (1, 2, 3)]
    mine = 2 if second else 1
    preferred = votes.count(mine) >= 2
    question = row["instruction"] + ("\n\n" + row["input"] if row["input"] else "")
    return question, row["response2" if second else "response1"], "better" if preferred else "not better"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["llmbar", "pandalm"])
    parser.add_argument("file")
    parser.add_argument("--rows", type=int, default=50)
    options = parser.parse_args()
    pick = {"llmbar": llmbar, "pandalm": pandalm}[options.kind]
    with open(options.file, encoding="utf-8") as data:
        rows = json.load(data)
    for at, row in enumerate(rows[: options.rows]):
        question, answer, label = pick(row, at % 2 == 1)
        json.dump({"id": f"{options.kind}-{at}", "input": question, "answer": answer, "label": label}, sys.stdout, ensure_ascii=False)
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
