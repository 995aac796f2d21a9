# SPDX-License-Identifier: Apache-2.0
"""English to Chinese, words to characters: loss and BLEU of sentences as long as those of the training, and of longer ones.

The text is the help of LibreOffice (MPL-2.0), whose paragraphs have the same id in both languages: two packages of Debian,
of which `apt-get download` and `dpkg -x` need no installation. None of it is shipped.
"""
from __future__ import annotations

import hashlib
import html
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import LabError
from ..translate import END, PAD, SPECIAL, START, UNKNOWN, Translator, search
from . import Options, Whole

PACKAGES = ("libreoffice-help-en-us", "libreoffice-help-zh-cn")
_HELP, _SOURCE, _TARGET = "usr/share/libreoffice/help", "en-US/text", "zh-CN/text"
_WORDS, _CHARACTERS = 4000, 1800  # of the vocabularies
_LONGEST_SOURCE, _LONGEST_TARGET, _HELD_OUT = 60, 80, 18  # words, characters, and one of how many sources is held out
_JUDGED, _ROWS, _BEAM, _SAMPLES = 256, 64, 4, 5  # sentences of each length, sentences a call


# ---------------------------------------------------------------- text

def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "posenc" / "lab" / "libreoffice-help"


def _has_pages(folder: Path) -> bool:
    return all((folder / _HELP / side).is_dir() for side in (_SOURCE, _TARGET))


def folder_of(text: str) -> Path:
    """The folder with usr/share/libreoffice/help: what is installed, what was fetched before, or fetched now."""
    if text != "libreoffice":
        folder = Path(text).absolute()  # apt-get and dpkg run in another folder
        if folder.exists() and not folder.is_dir():
            raise LabError(f'--text of translate must be a folder of the packages {" and ".join(PACKAGES)}, got the file "{text}"')
    elif _has_pages(Path("/")):
        return Path("/")
    else:
        folder = _cache()
    if not _has_pages(folder):
        _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    """Both packages, unpacked. Nothing is left there unless all of it is."""
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise LabError(f"translate needs {program} to fetch {' and '.join(PACKAGES)}; unpack both into a folder and give it as --text FOLDER")
    sys.stderr.write(f"fetching {' and '.join(PACKAGES)} of Debian, 5.2 MB, into {folder}\n")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as part:
            _call(["apt-get", "-q", "-o", "Acquire::http::Timeout=30", "-o", "Acquire::Retries=1", "download", *PACKAGES], part)
            for package in sorted(Path(part).glob("*.deb")):
                _call(["dpkg", "-x", str(package), "unpacked"], part)
            if not _has_pages(Path(part) / "unpacked"):
                raise LabError(f"{' and '.join(PACKAGES)} must have pages in {_HELP}/{_SOURCE} and {_TARGET}; these have not")
            shutil.rmtree(folder / "usr", ignore_errors=True)
            os.replace(Path(part) / "unpacked" / "usr", folder / "usr")
    except OSError as e:
        raise LabError(f'translate needs a folder that can be written for its text, got "{folder}" ({e.strerror}); --text FOLDER names another') from e


def _call(words: Sequence[str], where: str) -> None:
    done = subprocess.run(words, cwd=where, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        told = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("W:")] or ["no message"]
        raise LabError(f"translate cannot fetch its text: {words[0]} ended with {done.returncode} ({told[-1].strip()}). It needs a connection and "
                       f"the lists of apt-get update; or unpack {' and '.join(PACKAGES)} into a folder and give it as --text FOLDER")


def _paragraphs(path: Path) -> dict[str, str]:
    """By id; later ones of the same id replace earlier ones."""
    found = {}
    for m in re.finditer(r'<(p|h\d) id="([^"]+)"[^>]*>(.*?)</\1>', path.read_text(encoding="utf-8", errors="replace"), flags=re.S):
        text = " ".join(html.unescape(re.sub(r"<[^>]+>", "", m.group(3))).split())
        if text:
            found[m.group(2)] = text
    return found


def pairs(folder: Path) -> list[tuple[str, str]]:
    """Every paragraph with its translation, once, in the order of their text."""
    root, found = folder / _HELP, set()
    for page in (root / _SOURCE).rglob("*.html"):
        other = root / _TARGET / page.relative_to(root / _SOURCE)
        if other.is_file():
            source, target = _paragraphs(page), _paragraphs(other)
            found |= {(source[key], target[key]) for key in source.keys() & target.keys() if source[key] != target[key]}
    return sorted(found)


def words_of(source: str) -> list[str]:
    """Words, digits and signs, in small letters."""
    return re.findall(r"[A-Za-z]+|\d|[^\sA-Za-z\d]", source.lower())


@dataclass(frozen=True)
class Pair:
    source: str
    words: list[str]
    target: str


@dataclass(frozen=True)
class Pairs:
    """What is trained on and what is held out, by source: no source is in both. digest: of all of it."""

    train: list[Pair]
    held_out: list[Pair]
    digest: str


@lru_cache(maxsize=2)
def corpus(text: str) -> Pairs:
    """Sentences of moderate length with one target a source, in the order of the hash of the source: of each 18, one is held out."""
    kept: dict[str, Pair] = {}
    for source, target in pairs(folder_of(text)):
        words = words_of(source)
        if re.search("[\u4e00-\u9fff]", target) and 2 <= len(words) <= _LONGEST_SOURCE and len(target) <= _LONGEST_TARGET:
            kept.setdefault(" ".join(words), Pair(source, words, target))
    order = sorted(kept, key=lambda key: hashlib.sha256(key.encode()).digest())
    digest = hashlib.sha256("\0".join(f"{key}\t{kept[key].target}" for key in order).encode()).hexdigest()[:16]
    held = len(order) // _HELD_OUT
    return Pairs([kept[key] for key in order[held:]], [kept[key] for key in order[:held]], digest)


# ---------------------------------------------------------------- BLEU

def bleu(made: Sequence[str], wanted: Sequence[str]) -> float:
    """BLEU of characters, in hundredths (Papineni et al. 2002): runs of 1 to 4, spaces left out, over all sentences together.

    0 where no run of some length is right, without smoothing.
    """
    same, every, sizes = [0] * 4, [0] * 4, [0, 0]
    for pair in zip(made, wanted, strict=True):
        made_text, wanted_text = ("".join(text.split()) for text in pair)
        sizes = [sizes[0] + len(made_text), sizes[1] + len(wanted_text)]
        for n in range(1, 5):
            ours, theirs = (Counter(text[i:i + n] for i in range(len(text) - n + 1)) for text in (made_text, wanted_text))
            same[n - 1] += (ours & theirs).total()
            every[n - 1] += ours.total()
    if not min(same):
        return 0.0
    shortness = min(1.0, math.exp(1 - sizes[1] / sizes[0]))
    return 100 * shortness * math.exp(sum(math.log(s / e) for s, e in zip(same, every)) / 4)


# ---------------------------------------------------------------- the task

def _padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """[rows, longest] and the length of each."""
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows]), torch.tensor([len(row) for row in rows])


class Task(Whole):
    defaults = {"train": 16, "test": 32, "steps": 900, "batch": 48, "lr": 1.5e-3, "width": 128, "text": "libreoffice"}

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        o = options
        if not o.train < o.test <= _LONGEST_SOURCE:
            raise LabError(f"--test of translate must be words above --train, {o.train}, and at most {_LONGEST_SOURCE}, got {o.test}")
        self.corpus = corpus(o.text)
        self.learned = sorted((p for p in self.corpus.train if len(p.words) <= o.train), key=lambda p: len(p.target))
        tested = self.corpus.held_out
        self.tests = {"short": [p for p in tested if len(p.words) <= o.train][:_JUDGED],
                      "long": [p for p in tested if o.train < len(p.words) <= o.test][:_JUDGED]}
        least = min(len(self.tests["short"]), len(self.tests["long"]), len(self.learned) // o.batch)
        if least < 1:
            raise LabError(f"the text of translate must have {o.batch} pairs of at most {o.train} words to train on, one held out, and one held out of "
                           f"at most {o.test} words; {o.text} has {len(self.learned)}, {len(self.tests['short'])} and {len(self.tests['long'])}")
        # Words that no trained sentence has are unknown.
        count = Counter(w for p in self.learned for w in p.words), Counter(c for p in self.learned for c in p.target)
        self.words, characters = ([w for w, _ in sorted(c.items(), key=lambda x: (-x[1], x[0]))[:most]] for c, most in zip(count, (_WORDS, _CHARACTERS)))
        self.characters = "".join(characters)
        self._word = {w: i for i, w in enumerate(self.words, SPECIAL)}
        self._character = {c: i for i, c in enumerate(self.characters, SPECIAL)}
        self.vocabulary = SPECIAL + len(self.characters)
        self.judged_tokens = 80 * 3 * o.batch * o.train  # the tests take as long as 80 steps

    def limit(self, words: int | Tensor) -> Any:
        """The most characters of a translation: more than 999 of 1000 have."""
        return 2 * words + 20

    def model(self, scheme: str, seed: int) -> Translator:
        o = self.options
        rows = max(_LONGEST_TARGET + 1, self.limit(o.test))
        return Translator(scheme, SPECIAL + len(self.words), self.vocabulary, width=o.width, layers=o.layers, heads=o.heads, rows=rows,
                          trained=(o.train, len(self.learned[-1].target) + 1), seed=seed)

    def _sources(self, some: list[Pair]) -> tuple[Tensor, Tensor]:
        return _padded([[self._word.get(w, UNKNOWN) for w in p.words] for p in some])

    def _targets(self, some: list[Pair]) -> tuple[Tensor, Tensor]:
        """Characters that go in, and those that are to come out, -100 where none is."""
        rows = [[self._character.get(c, UNKNOWN) for c in p.target] for p in some]
        y, lengths = _padded([[START, *row] for row in rows])
        out, _ = _padded([[*row, END] for row in rows])
        return y, torch.where(torch.arange(y.shape[1]) < lengths[:, None], out, -100)

    def loss(self, model: Translator, count: int, generator: torch.Generator, at: tuple[int, int] = (0, 0)) -> Tensor:
        """Of `count` pairs drawn from a stretch of eight times as many targets of similar length, so that little is padding."""
        size = min(8 * count, len(self.learned))
        stretch = int(torch.randint(0, -(-len(self.learned) // size), (), generator=generator))
        first = min(stretch * size, len(self.learned) - size)
        some = [self.learned[first + i] for i in torch.randperm(size, generator=generator)[:count].tolist()]
        x, lengths = self._sources(some)
        y, out = self._targets(some)
        return F.cross_entropy(model(x, lengths, y).flatten(0, 1), out.flatten(), ignore_index=-100)

    @torch.no_grad()
    def _judged(self, model: Translator, tested: list[Pair]) -> tuple[float, dict[int, list[str]]]:
        """Nats a character, and the translations in the order of `tested`, by greedy search and by the beam."""
        total, asked = 0.0, 0
        made: dict[int, list[str]] = {beam: [""] * len(tested) for beam in (1, _BEAM)}
        order = sorted(range(len(tested)), key=lambda i: len(tested[i].words))
        for start in range(0, len(order), _ROWS):
            rows = order[start:start + _ROWS]
            some = [tested[i] for i in rows]
            x, lengths = self._sources(some)
            y, out = self._targets(some)
            total += float(F.cross_entropy(model(x, lengths, y).flatten(0, 1), out.flatten(), ignore_index=-100, reduction="sum"))
            asked += int((out != -100).sum())
            for beam, texts in made.items():
                for i, ids in zip(rows, search(model, x, lengths, self.limit(lengths), beam)):
                    texts[i] = "".join(self.characters[c - SPECIAL] for c in ids)
        return total / asked, made

    def judge(self, model: Translator, seed: int) -> dict[str, Any]:
        found: dict[str, Any] = {"loss": {}, "bleu": {}, "bleu_beam": {}, "beam": _BEAM}
        for name, tested in self.tests.items():
            loss, made = self._judged(model, tested)
            wanted = [p.target for p in tested]
            found["loss"][name] = round(loss, 4)
            found["bleu"][name], found["bleu_beam"][name] = round(bleu(made[1], wanted), 2), round(bleu(made[_BEAM], wanted), 2)
            if name == "short":
                found["samples"] = [{"source": p.source, "wanted": p.target, "made": text} for p, text in zip(tested[:_SAMPLES], made[_BEAM])]
        return found
