# SPDX-License-Identifier: Apache-2.0
"""Text for the lab, read where Debian keeps it; none is shipped. Whole files are held out for the tests."""
from __future__ import annotations

import hashlib
import os
import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from .errors import LabError

LICENCES = "/usr/share/common-licenses"
_HELD_OUT, _LEFT_OUT = ("MPL-2.0",), ("GPL-1",)  # GPL-1 is nearly GPL-2
BIBLE = "/usr/share/sword/modules/texts/ztext/engWEB2015eb"  # the module of sword-text-web
_HELD_OUT_BOOKS = (7, 18, 40)  # every eleventh or so of each testament's blocks


@dataclass(frozen=True)
class Corpus:
    """Characters as numbers: what is trained on, what is held out. name: where it came from; digest: of its characters."""

    name: str
    letters: str
    train: Tensor
    held_out: Tensor
    digest: str


def _corpus(name: str, train: list[str], held_out: list[str]) -> Corpus:
    texts = ["".join(train), "".join(held_out)]
    letters = sorted(set("".join(texts)))
    number = {c: i for i, c in enumerate(letters)}
    coded = [torch.tensor([number[c] for c in text], dtype=torch.int64) for text in texts]
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    return Corpus(name, "".join(letters), coded[0], coded[1], digest)


def _read(path: str, option: str = "--text") -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as e:
        raise LabError(f'{option} must be a file that can be read, got "{path}" ({e.strerror})') from e


def _licences() -> Corpus:
    names = sorted(n for n in (os.listdir(LICENCES) if os.path.isdir(LICENCES) else []) if not os.path.islink(f"{LICENCES}/{n}"))
    train = [n for n in names if n not in _HELD_OUT + _LEFT_OUT]
    if len(train) < 4 or not all(n in names for n in _HELD_OUT):
        raise LabError(f"text licences needs the files of Debian's base-files in {LICENCES}, {', '.join(_HELD_OUT)} among them; "
                       f"there are {len(names)}. --text FOLDER reads other files")
    return _corpus("licences", [_read(f"{LICENCES}/{n}") for n in train], [_read(f"{LICENCES}/{n}") for n in _HELD_OUT])


def _sword_books(part: str) -> list[str]:
    """The books of a SWORD zText module with one block a book: .bzs has offset, size and length of each block (u32), .bzz the blocks."""
    try:
        index, blocks = (open(f"{BIBLE}/{part}.{end}", "rb").read() for end in ("bzs", "bzz"))
    except OSError as e:
        raise LabError(f"text bible needs Debian's package sword-text-web in {BIBLE}: {e.strerror}") from e
    books = []
    for first, size, _ in struct.iter_unpack("<III", index[:len(index) // 12 * 12]):
        if size:
            books.append(zlib.decompress(blocks[first:first + size]).decode("utf-8", "replace"))
    return books


def _bible() -> Corpus:
    from re import sub

    books = [sub(r"<[^>]*>", "", book) for part in ("ot", "nt") for book in _sword_books(part)]
    books = [b for b in books if len(b) > 1000]
    if len(books) <= max(_HELD_OUT_BOOKS):
        raise LabError(f"text bible needs more than {max(_HELD_OUT_BOOKS)} books, {BIBLE} has {len(books)}")
    return _corpus("bible", [b for i, b in enumerate(books) if i not in _HELD_OUT_BOOKS], [books[i] for i in _HELD_OUT_BOOKS])


@lru_cache(maxsize=4)
def corpus(text: str, held_out: str | None = None) -> Corpus:
    """licences, bible, or a file or folder; held_out: a file, by default the last file of the folder."""
    if text in ("licences", "bible"):
        if held_out:
            raise LabError(f"--held-out belongs to files of your own; text {text} holds out its own")
        return _licences() if text == "licences" else _bible()
    if os.path.isdir(text):
        files = sorted(f"{text}/{n}" for n in os.listdir(text) if os.path.isfile(f"{text}/{n}"))
    else:
        files = [text]
        _read(text)
    if held_out is None:
        if len(files) < 2:
            raise LabError(f'--text "{text}" has {len(files)} file(s): a whole file is held out, so give a folder of two or more, or --held-out FILE')
        *files, held_out = files
    files = [f for f in files if os.path.abspath(f) != os.path.abspath(held_out)]
    if not files:
        raise LabError(f'--held-out must be another file than --text, got "{held_out}"')
    return _corpus(text, [_read(f) for f in files], [_read(held_out, "--held-out")])


def windows(text: Tensor, length: int, count: int, generator: torch.Generator) -> Tensor:
    """`count` runs of `length` characters from drawn places, [count, length]."""
    starts = torch.randint(0, len(text) - length + 1, (count,), generator=generator)
    return text[starts[:, None] + torch.arange(length)]


def check_length(corpus: Corpus, trained: int, longest: int) -> None:
    for which, text, need in (("to train on", corpus.train, trained + 1), ("held out", corpus.held_out, longest + 2)):
        if len(text) < need:
            raise LabError(f"the text {which} of {corpus.name} must have {need} characters, one window, got {len(text)}")
