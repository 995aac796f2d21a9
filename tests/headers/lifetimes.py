#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang warns of each line marked "// dangles", where a view outlives its owner, and of no other.

    lifetimes.py CLANG INCLUDE...
"""
import subprocess
import sys

CODE = """
#include "posenc/io/array.h"
#include "posenc/posenc.h"
using namespace posenc;
Array read();
RotaryPlan plan();
RotaryTableSet tables();
void use(const Positions&, const TensorView&);
void f() {
  use(arange(0, 16), read().view());      // temporaries live as long as the call
  const OwnedPositions kept = arange(0, 16);
  const Positions seen = kept;
  use(seen, {});
  const Positions gone = arange(0, 16);   // dangles
  use(gone, {});
  const TensorView view = read().view();  // dangles
  use(kept, view);
  const auto blocks = plan().tables();    // dangles
  const RotarySpec& spec = plan().spec();  // dangles
  const RotaryTable& first = tables()[0];  // dangles
  (void)blocks, (void)spec, (void)first;
}
"""

clang, *includes = sys.argv[1:]
result = subprocess.run([clang, "-std=c++20", "-fsyntax-only", "-x", "c++", "-", *(f"-I{i}" for i in includes)], input=CODE,
                        stderr=subprocess.PIPE, text=True)
warned = {int(line.split(":")[1]) for line in result.stderr.splitlines() if "[-Wdangling" in line}
marked = {n for n, line in enumerate(CODE.split("\n"), 1) if line.endswith("// dangles")}
if result.returncode or warned != marked:
    print(result.stderr)
    sys.exit(f"clang warned of lines {sorted(warned)}, views dangle in {sorted(marked)}")
print(f"{len(marked)} views that outlive their owners, all warned of")
