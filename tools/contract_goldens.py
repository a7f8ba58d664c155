"""Renders tests/golden/contracts/*.txt with the authors' own templates, so that assize's are held to them.

    python3 tools/contract_goldens.py REPOSITORIES VICUNA_EVAL

REPOSITORIES is a folder with clones named prometheus-eval, flow-judge and selene-mini; VICUNA_EVAL is
prometheus-eval's vicuna_eval.json. GLIDER's template has no repository: its golden was put together by hand, from the
model's card.
"""

import importlib.util
import json
import re
import subprocess
import sys
import types
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "contracts"
CASE = json.loads((GOLDEN / "case.json").read_text(encoding="utf-8"))


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def commit(folder):
    return subprocess.run(
        ["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


def write(name, origin, messages):
    text = f"# contract: {name}\n# origin: {origin}\n# case: case.json\n"
    for role, content in messages:
        text += f"==== {role}\n{content}\n"
    (GOLDEN / f"{name}.txt").write_text(text + "==== end\n", encoding="utf-8")


def scores(levels):
    return {f"score{label}_description": description for label, description in levels}


def prometheus(folder, vicuna):
    prompts = load(folder / "libs/prometheus-eval/prometheus_eval/prompts.py", "prompts")
    rubric = prompts.SCORE_RUBRIC_TEMPLATE.format(criteria=CASE["question"], **scores(CASE["levels"]))
    instruction = "\n\n".join([CASE["input"], *CASE["context"]])
    common = dict(instruction=instruction, reference_answer=CASE["reference"])
    origin = f"prometheus-eval/prometheus-eval@{commit(folder)}"
    absolute = dict(common, response=CASE["response"], rubric=rubric)
    relative = dict(
        common,
        response_A=CASE["response"],
        response_B=CASE["response_b"],
        rubric=rubric.split("\n")[0],
    )
    bare = dict(instruction=CASE["input"])
    context = dict(bare, relevant_context="\n\n".join(CASE["context"]))
    for name, system, template, slots in [
        ("absolute-reference", prompts.ABS_SYSTEM_PROMPT, prompts.ABSOLUTE_PROMPT, {}),
        ("absolute-context", prompts.ABS_SYSTEM_PROMPT, prompts.ABSOLUTE_PROMPT_WO_REF_RAG, context),
        ("absolute", prompts.ABS_SYSTEM_PROMPT, prompts.ABSOLUTE_PROMPT_WO_REF, bare),
        ("relative-reference", prompts.REL_SYSTEM_PROMPT, prompts.RELATIVE_PROMPT, {}),
        ("relative-context", prompts.REL_SYSTEM_PROMPT, prompts.RELATIVE_PROMPT_WO_REF_RAG, context),
        ("relative", prompts.REL_SYSTEM_PROMPT, prompts.RELATIVE_PROMPT_WO_REF, bare),
    ]:
        slots = {**(absolute if name.startswith("absolute") else relative), **slots}
        content = system + "\n\n" + template.format(**slots)
        write(f"prometheus-v2-{name}", f"{origin} prompts.py, joined as train/…/prepare_dataset.py", [("user", content)])
    # The first version's template is what its rows have in common.
    row = json.loads(vicuna.read_text(encoding="utf-8"))[0]["instruction"]
    for header, text in [
        ("The instruction to evaluate:", instruction),
        ("Response to evaluate:", CASE["response"]),
        ("Reference Answer (Score 5):", CASE["reference"]),
        ("Score Rubrics:", rubric),
    ]:
        pattern = rf"(###{re.escape(header)}\n).*?(\n\n###)"
        row = re.sub(pattern, lambda found: found[1] + text + found[2], row, count=1, flags=re.S)
    system = "You are a fair evaluator language model."
    origin += " eval/benchmark/data/vicuna_eval.json, system text of prometheus-eval/prometheus run_absolute_scoring.py"
    write("prometheus-v1", origin, [("system", system), ("user", row)])


def flow_judge(folder):
    metric = types.ModuleType("flow_judge.metrics.metric")
    metric.RubricItem = type("RubricItem", (), {})
    for name in ["flow_judge", "flow_judge.metrics"]:
        sys.modules[name] = types.ModuleType(name)
    sys.modules["flow_judge.metrics.metric"] = metric
    forms = load(folder / "flow_judge/utils/prompt_formatter.py", "prompt_formatter")
    origin = f"flowaicom/flow-judge@{commit(folder)} prompt_formatter.py"

    def render(inputs, levels):
        items = []
        for score, description in levels:
            item = metric.RubricItem()
            item.score, item.description = score, description
            items.append(item)
        return forms.format_user_prompt(
            dict(
                INPUTS=forms.format_vars(inputs),
                OUTPUT=forms.format_vars([{"response": CASE["response"]}]),
                EVALUATION_CRITERIA=CASE["question"],
                RUBRIC=forms.format_rubric(items),
            )
        )

    inputs = [
        {"query": CASE["input"]},
        {"context": "\n\n".join(CASE["context"])},
        {"reference answer": CASE["reference"]},
    ]
    levels = [(int(label), description) for label, description in CASE["levels"]]
    binary = [({"pass": 1, "fail": 0}[label], description) for label, description in CASE["binary"]]
    write("flow-judge", origin, [("user", render(inputs, levels))])
    write("flow-judge-binary", origin, [("user", render(inputs, binary))])
    write("flow-judge-no-inputs", origin, [("user", render([], levels[:3]))])


def selene(folder):
    origin = f"atla-ai/selene-mini@{commit(folder)} prompt-templates/"
    instruction = "\n\n".join([CASE["input"], *CASE["context"]])
    slots = dict(
        user_input=instruction,
        assistant_response=CASE["response"],
        assistant_response_a=CASE["response"],
        assistant_response_b=CASE["response_b"],
        reference_response=CASE["reference"],
        rubric_objective=CASE["question"],
        rubric_yes_description=CASE["binary"][0][1],
        rubric_no_description=CASE["binary"][1][1],
    )
    slots.update({f"rubric_score_{label}_description": text for label, text in CASE["levels"]})
    for name, file in [
        ("selene", "absolute-scoring"),
        ("selene-reference", "absolute-scoring-with-reference"),
        ("selene-binary", "classification"),
        ("selene-binary-reference", "classification-with-reference"),
        ("selene-pair", "pairwise"),
    ]:
        lines = (folder / f"prompt-templates/{file}.yaml").read_text(encoding="utf-8").split("\n")
        assert lines[0] == "user_template: |-", lines[0]
        template = "\n".join(line.removeprefix("  ") for line in lines[1:]).rstrip("\n")
        write(name, origin + file + ".yaml", [("user", template.format(**slots))])


def main():
    repositories, vicuna = Path(sys.argv[1]), Path(sys.argv[2])
    prometheus(repositories / "prometheus-eval", vicuna)
    flow_judge(repositories / "flow-judge")
    selene(repositories / "selene-mini")


if __name__ == "__main__":
    main()
