// SPDX-License-Identifier: Apache-2.0
// JSON: text is refused by FormatError, or what it says survives being written and read again.
#include "fuzz/law.h"
#include "posenc/core/error.h"
#include "posenc/io/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace posenc;
  Json j;
  try {
    j = parse_json(fuzz::text(data, size), "input");
  } catch (const FormatError&) {
    return 0;
  }
  fuzz::law(parse_json(j.dump(), "dump") == j, "parse(dump(x)) == x");
  fuzz::law(parse_json(j.dump(2), "dump") == j, "parse(dump(x, 2)) == x");
  return 0;
}
