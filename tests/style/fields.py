# SPDX-License-Identifier: Apache-2.0
"""A rule that begins with the name of its field gives the field as a value: refuse_field(who, "x", "must ..."), so that
ArgumentError::field() is right."""
import pathlib, re, sys

CALL = re.compile(r"\brefuse(?:_shape)?\(\s*[^,()]+,\s*(?:std::string\()?\"([^\" ]+) (?:must|needs|belongs)\b")
# refuse_field("rope", "x", "x must ..."): the message would have the field twice.
TWICE = re.compile(r"\brefuse_field\(\s*[^,()]+,\s*\"([^\"]+)\",\s*(?:std::string\()?\"\1 ")
# Every refusal of a call names its argument: refuse_field, or refuse_sentence where the message begins otherwise.
NAMELESS = re.compile(r"\b(refuse)\(")
NAMED = "src/attention"
SENTENCES = {"there", "memory"}  # "there must be 1 to 8 axes"
FOLDERS = ("include", "src", "python/src", "conformance/runner", "examples")


def main(root):
    wrong, read = [], 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
                continue
            read += 1
            text = path.read_text()
            for pattern, fix in ((CALL, 'is the field: refuse_field(who, "{0}", "must ...")'),
                                 (TWICE, "is written twice: refuse_field adds the field to the message")):
                wrong += [f"{path.relative_to(root)}:{text.count(chr(10), 0, m.start()) + 1}: \"{m[1]}\" {fix.format(m[1])}"
                          for m in pattern.finditer(text) if m[1] not in SENTENCES]
            if path.is_relative_to(root / NAMED):
                wrong += [f"{path.relative_to(root)}:{text.count(chr(10), 0, m.start()) + 1}: an error of a call names no argument"
                          for m in NAMELESS.finditer(text)]
    print("\n".join(wrong) or f"the errors of {read} files give their field as a value")
    sys.exit(1 if wrong or read < 500 else 0)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
