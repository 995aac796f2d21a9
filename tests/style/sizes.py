# SPDX-License-Identifier: Apache-2.0
"""No file over 400 lines, no function over 60: by indentation, which clang-format holds."""
import pathlib, re, subprocess, sys

FILE, FUNCTION = 400, 60
NO_FUNCTION = re.compile(r"\s*(alignas\(\d+\) )?(namespace|struct|class|enum|union|extern|constexpr|inline constexpr|const|static const|template <[^()]*> struct)\b")


def functions(lines):
    """(first line, number of lines) of every block that a parameter list opens, outermost in its scope."""
    i = 0
    while i < len(lines):
        line = lines[i]
        if line.endswith("{") and not line.startswith("//") and is_function(lines, i):
            indent = line_indent(lines, i)
            end = next((j for j in range(i + 1, len(lines)) if re.match(rf"{indent}}}(?!\w)", lines[j])), i)
            first = start(lines, i)
            yield first + 1, end - first + 1
            i = end
        i += 1


def start(lines, i):
    """The first line of the declaration that ends on line i."""
    while i > 0 and lines[i - 1] and not re.search(r"([;{}:]|\}\},|\*/)$", lines[i - 1]) and not re.match(r"\s*(//|#|template)", lines[i - 1]):
        i -= 1
    return i


def line_indent(lines, i):
    return re.match(r" *", lines[start(lines, i)])[0]


def is_function(lines, i):
    text = " ".join(lines[start(lines, i):i + 1])
    return "(" in text and not NO_FUNCTION.match(text.replace("constexpr auto", "")) or re.match(r"\s*(constexpr|inline)[^={]*\([^={]*\{$", text)


def main(root):
    wrong, count = [], 0
    listed = subprocess.run(["git", "ls-files", "*.h", "*.cpp", "*.c", "*.cu"], cwd=root, capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        path = root / name
        if not path.exists():
            continue
        lines = path.read_text().splitlines()
        if len(lines) > FILE:
            wrong.append(f"{name}: {len(lines)} lines, at most {FILE}")
        if name.startswith("tests/"):
            continue
        for first, length in functions(lines):
            count += 1
            if " describe(" in lines[first - 1]:  # a list of fields, one line each
                continue
            if length > FUNCTION:
                wrong.append(f"{name}:{first}: a function of {length} lines, at most {FUNCTION}")
    print("\n".join(wrong) or f"{count} functions and every file within their limits")
    sys.exit(1 if wrong or not count else 0)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
