#!/usr/bin/env python3
"""More rows of a workload for `assize bench`: the sentences of each answer in other orders, by a seed.

  device_rows.py rows.jsonl --rows 2000 > many.jsonl
  device_rows.py --rows 24 > own.jsonl      # without a file: one question, and answers put together from ready sentences

A row has `prefix`, `answer`, `suffix`, `score_suffix`, `json_schema` and `score_grammar`; `prompt` and `score_prompt` are made of them.
"""
import argparse
import json
import random
import re
import sys

RUBRIC = """Grade the answer to the question by the rubric, and quote it where you justify the grade.

Question: why does a bicycle stay upright when it is ridden?

Rubric: 1 wrong from end to end; 2 mostly wrong; 3 half right; 4 right with a gap; 5 right and complete. An answer that names one cause alone is not
complete. Length and style count for nothing. A claim without a reason is worth less than one with a reason.

Answer:
"""
SENTENCES = [
    "The rider steers into a fall without thinking of it.",
    "That moves the wheels back under the weight.",
    "The fork is bent so that the wheel trails behind the axis of steering.",
    "A trailing wheel turns into a lean by itself.",
    "The spinning wheels act as gyroscopes, which helps a little.",
    "Bicycles with wheels that cancel each other's spin can be ridden all the same.",
    "The weight of the frame pushes the front wheel towards the lean.",
    "At a walking pace all of this is weak, and the rider has to work.",
    "The tyres are wide enough to stand on.",
    "The wind pushes from both sides alike.",
    "A rider who holds the bar fixed falls within a few metres.",
    "The faster it goes, the smaller the corrections are.",
]
SCHEMA = {
    "type": "object",
    "properties": {
        "rationale": {"type": "string", "maxLength": 240},
        "evidence": {"type": "array", "items": {"type": "string", "maxLength": 120}, "minItems": 1, "maxItems": 2},
        "score": {"type": "integer", "enum": [1, 2, 3, 4, 5]},
    },
    "required": ["rationale", "evidence", "score"],
    "additionalProperties": False,
}


def own_rows():
    for number in range(24):
        picked = random.Random(number).sample(SENTENCES, 8)
        yield {
            "prefix": RUBRIC,
            "answer": " ".join(picked),
            "suffix": "\n\nThe grade as JSON:\n",
            "score_suffix": "\n\nThe grade: ",
            "json_schema": SCHEMA,
            "score_grammar": "root ::= [1-5]",
            "temperature": 0,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.file:
        with open(options.file, encoding="utf-8") as data:
            rows = [json.loads(line) for line in data if line.strip()]
    else:
        rows = list(own_rows())
    chance = random.Random(options.seed)
    for at in range(options.rows):
        row = dict(rows[at % len(rows)])
        if at >= len(rows):
            sentences = re.split(r"(?<=[.!?]) ", row["answer"])
            chance.shuffle(sentences)
            row["answer"] = " ".join(sentences)
        row["id"] = at
        row["prompt"] = row["prefix"] + row["answer"] + row["suffix"]
        row["score_prompt"] = row["prefix"] + row["answer"] + row["score_suffix"]
        json.dump(row, sys.stdout, ensure_ascii=False)
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
