# SPDX-License-Identifier: Apache-2.0
"""The claims that articles repeat about position encodings, judged on the runs of a folder.

A claim is a list of checks. Each check is a number of one seed (usually the difference of two schemes that were trained
with the same seed and options), its mean over the seeds is compared with a limit. Curves that exploded are never ranked.
"""
from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Sequence

from .results import Row, group_of, scheme_of

VERDICTS = {"pass": "PASS", "fail": "FAIL", "differs_as_expected": "differs from the paper, as expected", "not_run": "not run"}
NEEDED_SEEDS, CLOSE = 3, 0.15  # seeds differ by 0.05 to 0.2 nats, so a smaller margin needs several
RELATIONS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "<": ("below ", operator.lt), "<=": ("at most ", operator.le), ">": ("above ", operator.gt), ">=": ("at least ", operator.ge),
    "within": ("within ±", lambda x, limit: abs(x) < limit),
}
Seed = Mapping[str, Sequence[Row]]  # the runs of one seed, by label


class Missing(Exception):
    """A run or a number that a claim needs is not there."""


@dataclass(frozen=True)
class Check:
    """number: "LABEL PATH TIMES", or the difference of two; TIMES is a multiple of the trained length, PATH leads through values.
    optional: left out where its run or number is not there."""

    name: str
    words: str
    relation: str
    limit: float
    number: str
    optional: bool = False

    def of(self, seed: Seed) -> float:
        first, *rest = (_number(seed, *term.split()) for term in self.number.split(" - "))
        return first - sum(rest)

    def is_there(self, seed: Seed) -> bool:
        try:
            return bool(math.isfinite(self.of(seed)))
        except Missing:
            return False


def _number(seed: Seed, label: str, path: str, times: str = "") -> float:
    rows = seed.get(label, [])
    if len(rows) > 1:
        raise Missing(f"{label} is the name of two schemes, {scheme_of(rows[0])} and {scheme_of(rows[1])}")
    if not rows:
        raise Missing(f"{label} was not run")
    if "failed" in rows[0]:
        raise Missing(f"{label} failed: {rows[0]['failed']}")
    found: Any = rows[0]["values"]
    names = path.split(".")
    length = str(int(times) * rows[0]["options"]["train"]) if times else names.pop()
    for name in (*names, length):
        if name not in found:
            raise Missing(f"{label} has no {' '.join(names)} at {length}")
        found = found[name]
    return float(found)


@dataclass(frozen=True)
class Claim:
    name: str
    title: str
    task: str
    checks: Sequence[Check]
    options: tuple[tuple[str, str], ...] = ()
    published: str = ""  # not empty: an order of papers that does not appear at this size


def _yarn(mode: str, name: str) -> list[Check]:
    optional = mode != "yarn"
    return [Check(f"{mode}_below_ntk", f"{name} minus NTK at 4 ×", "<", 0, f"rope modes.{mode}.zero 4 - rope modes.ntk.zero 4", optional),
            Check(f"{mode}_loses", f"{name} at 4 × minus no scaling at 1 ×", "<", 0.25, f"rope modes.{mode}.zero 4 - rope modes.none.zero 1", optional)]


NAMES = {"sinusoidal": "sinusoidal", "learned": "learned", "rope": "RoPE", "alibi": "ALiBi", "t5": "T5", "kerple": "KERPLE"}
OF_LOSS = (("measure", "loss"),)
CLAIMS = (
    Claim("A1", "ALiBi stays flat", "lm",
          [Check("alibi", "loss at 8 × minus loss at 1 ×", "within", 0.10, "alibi loss 8 - alibi loss 1")]),
    Claim("A2", "Absolute positions fall off a cliff", "lm",
          [Check(x, f"{x}, loss at 2 × minus loss at 1 ×", ">", limit, f"{x} loss 2 - {x} loss 1") for x, limit in (("learned", 0.8), ("sinusoidal", 0.5))]),
    Claim("A3", "RoPE is among the best at the trained length and explodes beyond it", "lm",
          [*(Check(f"rope_minus_{x}", f"RoPE minus {x} at 1 ×", "<=", 0.03, f"rope loss 1 - {x} loss 1") for x in ("learned", "sinusoidal", "none")),
           Check("rope", "RoPE at 4 × minus RoPE at 1 ×", ">", 0.8, "rope loss 4 - rope loss 1")]),
    Claim("A4", "At 8 × ALiBi is best, then T5's bias, then the others", "lm",
          [Check("alibi_minus_t5", "ALiBi minus T5", "<", 0, "alibi loss 8 - t5 loss 8"),
           *(Check(f"t5_minus_{x}", f"T5 minus {NAMES[x]}", "<", 0, f"t5 loss 8 - {x} loss 8") for x in ("sinusoidal", "learned", "rope"))]),
    Claim("A5", "A decoder without positions works, but is worst at the trained length", "lm",
          [Check(f"none_minus_{x}", f"none minus {NAMES[x]}", ">", 0, f"none loss 1 - {x} loss 1") for x in NAMES]),
    Claim("A6", "KERPLE is about as good as ALiBi at 8 ×", "lm",
          [Check("kerple_minus_alibi", "KERPLE minus ALiBi", "<=", 0.1, "kerple loss 8 - alibi loss 8")]),
    Claim("A7", "RoPE finds the third token back beyond its length, a learned table does not", "shift",
          [Check("rope", "accuracy of RoPE at 2 ×", ">", 0.9, "rope accuracy 2"),
           Check("learned", "accuracy of the learned table at 2 ×", "<", 0.65, "learned accuracy 2")]),
    Claim("A8", "YaRN beats NTK, NTK beats no scaling; fine-tuned, YaRN still beats no scaling", "extension",
          [*_yarn("yarn", "YaRN"), *_yarn("yarn_default", "YaRN with its default beta_fast"),
           Check("ntk_below_none", "NTK minus no scaling at 4 ×", "<", 0, "rope modes.ntk.zero 4 - rope modes.none.zero 4"),
           Check("tuned", "fine-tuned YaRN minus fine-tuned without scaling at 4 ×", "<", 0, "rope modes.yarn.tuned 4 - rope modes.none.tuned 4")], OF_LOSS),
    Claim("A9", "A bias that is blind to direction cannot tell left from right", "direction",
          [Check("alibi", "accuracy of the symmetric bias at 4 ×", "<", 0.6, "alibi accuracy 4"),
           Check("alibi_half", "accuracy with half of the heads for each side at 4 ×", ">", 0.95, "alibi_half accuracy 4")]),
    Claim("A10", "ALiBi recalls a passkey beyond the trained length, a learned table does not", "passkey",
          [Check("alibi_minus_learned", "accuracy of ALiBi minus learned at 2 ×", ">", 0.2, "alibi accuracy 2 - learned accuracy 2")]),
    Claim("A11", "Translation needs the order of words", "translate",
          [Check("sinusoidal_minus_none", "BLEU of sinusoidal minus none, short sentences", ">=", 1.0, "sinusoidal bleu.short - none bleu.short")]),
    Claim("D1", "Linear interpolation beats no scaling without fine-tuning", "extension",
          [Check("linear_minus_none", "linear minus none at 4 ×, zero-shot", "<", 0, "rope modes.linear.zero 4 - rope modes.none.zero 4")], OF_LOSS,
          "published for 7B models (arXiv:2306.15595): 16.10 against more than 1000 in perplexity"),
    Claim("D2", "No positions and T5 copy longer texts than ALiBi, ALiBi longer ones than RoPE and learned tables", "copy",
          [*(Check(f"{x}_minus_alibi", f"accuracy of {x} minus ALiBi at 2 ×", ">", 0, f"{x} accuracy 2 - alibi accuracy 2") for x in ("none", "t5")),
           *(Check(f"alibi_minus_{x}", f"accuracy of ALiBi minus {NAMES[x]} at 2 ×", ">", 0, f"alibi accuracy 2 - {x} accuracy 2") for x in ("rope", "learned"))],
          published="published for models of 107M parameters (arXiv:2305.19466)"),
    Claim("D3", "LongRoPE's divisors beat YaRN without fine-tuning", "extension",
          [Check("longrope_minus_yarn", "LongRoPE minus YaRN at 4 ×, zero-shot", "<", 0, "rope modes.longrope.zero 4 - rope modes.yarn.zero 4")], OF_LOSS,
          "published for 7B models (arXiv:2402.13753), with a longer search for the divisors than the lab's"),
)


def judge(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One object a claim: name, verdict, value, margin and text as in claims.json, and title, checks and note, which text joins.
    A claim whose runs are not there has the verdict "not_run"."""
    return [_judge(claim, rows) for claim in CLAIMS]


def _judge(claim: Claim, rows: Sequence[Row]) -> dict[str, Any]:
    groups: dict[str, dict[int, dict[str, list[Row]]]] = {}
    for row in rows:
        if row["task"] == claim.task and all(row["options"].get(name) == value for name, value in claim.options):
            groups.setdefault(group_of(row), {}).setdefault(row["seed"], {}).setdefault(row["label"], []).append(row)
    best: dict[Check, list[float]] = {}
    why = [f"the task {claim.task} was not run"] if not groups else []
    for seeds in groups.values():
        found, missing = _measure(claim, seeds.values())
        why += missing
        if found and len(next(iter(found.values()))) > len(next(iter(best.values()), [])):
            best = found
    if not best:
        return {"name": claim.name, "title": claim.title, "verdict": "not_run", "value": {}, "margin": {},
                "text": f"{claim.title}: not run, because {why[0]}.", "checks": [], "note": f"Not run, because {why[0]}."}
    return _verdict(claim, best)


def _measure(claim: Claim, seeds: Iterable[Seed]) -> tuple[dict[Check, list[float]], list[str]]:
    """The numbers of each check over the seeds that have all of them, and why the others have not."""
    seeds, missing = list(seeds), []
    found: dict[Check, list[float]] = {}
    checks = [check for check in claim.checks if not check.optional or all(map(check.is_there, seeds))]
    for seed in seeds:
        try:
            one = [check.of(seed) for check in checks]
        except Missing as error:
            missing.append(str(error))
            continue
        for check, number in zip(checks, one):
            found.setdefault(check, []).append(number)
    return found, missing


def _verdict(claim: Claim, found: Mapping[Check, Sequence[float]]) -> dict[str, Any]:
    value, margin = {}, {}
    checks: list[dict[str, Any]] = []
    for check, numbers in found.items():
        mean, least, most = (round(x, 6) for x in (math.fsum(numbers) / len(numbers), min(numbers), max(numbers)))  # 2.13 - 2.10 is 0.03 here
        words, compare = RELATIONS[check.relation]
        holds = compare(mean, check.limit)
        value[check.name] = {"mean": mean, "least": least, "most": most, "holds": holds}
        margin[check.name] = check.limit
        spread = f"{min(numbers):.2f} to {max(numbers):.2f}; " if len(numbers) > 1 else ""
        checks.append({"holds": holds, "text": f"{check.words} is {mean:.2f} ({spread}limit: {words}{check.limit:g}{'' if holds else ', not met'})"})
    seeds, good = len(next(iter(found.values()))), all(check["holds"] for check in checks)
    verdict = "pass" if good else "differs_as_expected" if claim.published else "fail"
    note = "One seed." if seeds == 1 else f"Means of {seeds} seeds."
    if claim.published and not good:
        note += f" The order is {claim.published}."
    if seeds < NEEDED_SEEDS and any(abs(value[name]["mean"] - limit) < CLOSE for name, limit in margin.items() if claim.task in ("lm", "extension")):
        note += " A difference this close to its limit needs three seeds."
    return {"name": claim.name, "title": claim.title, "verdict": verdict, "value": value, "margin": margin, "checks": checks, "note": note,
            "text": f"{claim.title}: {'; '.join(check['text'] for check in checks)}. {note}"}
