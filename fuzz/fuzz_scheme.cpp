// SPDX-License-Identifier: Apache-2.0
// The SCHEME grammar: text is refused by std::invalid_argument, or parse(to_text(x)) == x; and what
// was read resolves to a sound spec or is refused.
#include <cmath>
#include <stdexcept>

#include "fuzz/law.h"
#include "posenc/core/array_lookup.h"
#include "posenc/registry.h"
#include "posenc/registry/fields.h"

namespace {

// An array for every name: as long as the name, of the codes of its letters.
std::vector<double> array_of(std::string_view name) {
  std::vector<double> values;
  for (const char c : name) values.push_back(1 + static_cast<unsigned char>(c) / 16.0);
  return values;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace posenc;
  Encoding e;
  try {
    e = parse_encoding(fuzz::text(data, size), array_of);
  } catch (const std::invalid_argument&) {
    return 0;
  }
  const std::string text = to_text(e);
  const Encoding again = parse_encoding(text);
  fuzz::law(again == e, "parse(to_text(x)) == x");
  fuzz::law(to_text(again) == text, "to_text is stable");
  fuzz::law(hash(again) == hash(e), "equal values have equal hashes");
  if (!is_rotary(e.scheme)) return 0;
  try {
    const RotarySpec spec = resolve(e, Context{4096});
    check_rotary(spec);
    fuzz::law(std::isfinite(spec.logit_factor()), "the logit factor is finite");
    fuzz::law(spec.hash() == resolve(e, Context{4096}).hash(), "resolving is pure");
  } catch (const std::invalid_argument&) {
  }
  return 0;
}
